# Prints what zsh completes at the end of a command line, a word on each line:
#
#     zsh -f completing.zsh DIRECTORY COMMAND_LINE
#
# DIRECTORY has the completion function, as a directory of fpath has it, and takes what zsh writes.
if [[ $1 == --inner ]]; then
    # in a shell of a terminal, where completion runs
    fpath=($2 $fpath)
    autoload -Uz compinit
    compinit -u -d $2/compdump
    compadd() {
        local -a words_of_match
        # -O, -A and -D ask for matches, and add none
        [[ ${@[1,(i)(-|--)]} == *-(O|A|D)\ * ]] || {
            builtin compadd -A words_of_match "$@"
            print -rl -- 'MATCH '$^words_of_match
        }
        builtin compadd "$@"
    }
    printed() {
        _main_complete
        print -r -- END
        compstate[insert]= compstate[list]=
    }
    zle -C printed complete-word printed
    bindkey '^X' printed
    print -r -- READY
    return
fi

zmodload zsh/zpty || exit 1
zpty inner zsh -f -i
zpty -w inner "source ${(q)0} --inner ${(q)1}"
while zpty -r inner line && [[ $line != *READY* ]]; do :; done
zpty -n -w inner "$2"$'\C-X'
while zpty -r inner line && [[ $line != END* ]]; do
    [[ $line == *'MATCH '* ]] && print -r -- ${${line##*MATCH }%%$'\r'*}
done
zpty -d inner
