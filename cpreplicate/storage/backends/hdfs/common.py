"""What every client of HDFS has in common."""

from __future__ import annotations

import errno
import functools
import logging
import re
import uuid
from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from cpreplicate.core import uri as uris
from cpreplicate.core.sizes import counted
from cpreplicate.errors import UsageError
from cpreplicate.storage.backends.rename_commit import (
    RenamingStorage,
    blaming,
    temporary_name,
)
from cpreplicate.storage.base import Content, NoAnswer, Transient, WriteSettings, refuse_unusable
from cpreplicate.storage.statuses import Attributes, DeletePolicy, Space
from cpreplicate.storage.waiting import workers

_log = logging.getLogger(__name__)
_SNAPSHOTS = ".snapshot"
# Without a quota, HDFS reports -1 (which hdfs-native reads as unsigned), or this for the root.
_UNLIMITED = (1 << 63) - 1
_UMASK = "fs.permissions.umask-mode"
_NEW_FILE = 0o666  # without the umask
_LATE = "its quotas are not known: the NameNode has not counted the files below in time"
_BITS = {"r": 4, "w": 2, "x": 1}


# directories, by their URIs, of which this process has seen no quota
_without_quota: set[str] = set()
# those of which a NameNode counts the files now, and for which worker
_asked: dict[str, workers.Assignment | None] = {}


class HdfsClientStorage(RenamingStorage):
    """A storage that a client of HDFS serves, whichever client it is."""

    counts_for_space = joins = True
    lists_less = True
    put_calls = 4  # create, addBlock, complete, rename2
    replication = 3  # the factor that new files are expected to have
    written: Written  # what new files have

    @abstractmethod
    def delete_path(self, uri: str) -> bool:
        """Delete a file or an empty directory; return False if it was not there.

        Raises `OSError` with ENOTEMPTY for a directory that is not empty.
        """

    def trash_minutes(self, uri: str) -> float | None:  # noqa: ARG002  # not every client knows
        """Return the trash interval of the cluster in minutes, None if it is not known."""
        return None

    def usage(self, uri: str) -> Usage | None:  # noqa: ARG002  # not every client asks
        """Return what a directory uses of its quotas, None if it is not known."""
        return None

    def concat(self, uri: str, others: Sequence[str]) -> None:
        """Append other files of the directory to a file. These are gone then."""
        raise NotImplementedError

    def begin_join(self, uri: str, length: int) -> str | None:  # noqa: ARG002  # any length
        """Return what the ranges of a file begin with, which are unfinished files of their own.

        The NameNode joins them by `concat`. It does not do that everywhere: `FSDirConcatOp` refuses
        it in encryption zones, and for what snapshots have. So it is tried in each directory until
        it answers. Returns None where it refuses, and this time if it does not answer.
        """
        directory, joint = uris.parent(uri), temporary_name(uri)
        if directory not in self._joining:
            try:
                self._joining[directory] = self._can_concat(joint)
            except Transient as error:
                _log.debug("whether files are joined beside %s is not known: %s", joint, error)
                return None
        return joint if self._joining[directory] else None

    @functools.cached_property
    def _joining(self) -> dict[str, bool]:
        """Whether files can be joined in a directory, where that was tried."""
        return {}

    def _can_concat(self, joint: str) -> bool:
        first, second = trial = f"{joint}-0", f"{joint}-1"
        try:
            for each in trial:
                self.write_new(each, lambda: [b"x"])
            self.concat(first, [second])
            status = self.stat(first)
            return status is not None and status.length == len(trial)
        except Transient:
            raise
        except (OSError, UsageError, NotImplementedError) as error:
            _log.debug("no file is joined of ranges beside %s: %s", joint, error)
            return False
        finally:
            for each in trial:
                self.removed(each)

    def write_range(
        self,
        uri: str,
        joint: str,
        offset: int,  # noqa: ARG002  # the order of the receipts is that of the ranges
        content: Content,
        expect: Callable[[int], None],
    ) -> str:
        """Write an unfinished file of its own, also if the range was written before."""
        part = f"{joint}-{uuid.uuid4().hex}"
        try:
            with blaming(uri, part):
                expect(self.write_new(part, content))
        except BaseException:
            self.removed(part)
            raise
        return part

    def join(
        self,
        uri: str,
        joint: str,  # noqa: ARG002  # each range has its name
        receipts: Sequence[str],
        length: int,
        attributes: Attributes | None = None,
    ) -> None:
        first, *others = receipts
        with blaming(uri, first):
            self.concat(first, others)
            status = self.stat(first)
            if status is None or status.length != length:
                reason = f"the ranges that were joined have not {counted(length, 'byte')}"
                raise OSError(errno.EIO, reason, first)
            if attributes is not None:
                self.set_attributes(first, attributes)
            self._let_appear(first, uri)

    def give_up_join(self, uri: str, joint: str) -> None:
        """Remove the unfinished files. The next run removes what a lost executor begins later."""
        for each in self.listing(uris.parent(uri)).names:
            if each.startswith(uris.name(joint)):
                self.removed(uris.join(uris.parent(uri), each))

    def space(self, uri: str, briefly: bool) -> Sequence[Space]:
        """Return the quotas of a replica and of the directories above it.

        Where there is none, the NameNode walks everything below to answer
        (`FSDirStatAndListingOp.getQuotaUsage`); hdfs-native always has it do so. So directories of
        the first level are not asked for, but TARGET_ROOT, in which only replicas are. `briefly`:
        only that, and not again by this process if it had no quota.
        """
        target_root = uris.parent(uri)
        if briefly:
            is_asked = path_of(target_root) and target_root not in _without_quota
            return self._quotas(target_root) if is_asked else []
        wanted = (path for path in uris.upwards(uri) if _is_asked(path, target_root))
        return [space for directory in wanted for space in self._quotas(directory)]

    def _quotas(self, directory: str) -> Sequence[Space]:
        """Return what the quotas of a directory leave, none if it is not there.

        Where the NameNode counts for longer than a call may take, it is not asked to begin again.
        """
        late = OSError(errno.ETIMEDOUT, _LATE, directory)
        asking, own = _asked.get(directory), workers.thread.assignment
        if asking is not None and asking.is_left:
            raise late
        spaces: list[Space] = []
        _asked[directory] = own
        try:
            usage = self.usage(directory)
            spaces = [] if usage is None else [*usage.space(directory, self.replication)]
        except FileNotFoundError:
            pass
        except NoAnswer as error:
            raise late from error
        finally:
            if _asked.get(directory) is own:  # else another sync has asked since
                _asked.pop(directory, None)
            (_without_quota.discard if spaces else _without_quota.add)(directory)
        return spaces

    def delete_policies(self, uri: str) -> Sequence[DeletePolicy]:
        return [*self._trash(uri), *self._snapshots(uri)]

    def _trash(self, uri: str) -> Iterator[DeletePolicy]:
        """Yield what the trash means: Hadoop's shell moves files there, `delete` does not."""
        minutes = self.trash_minutes(uri)
        if minutes:
            yield DeletePolicy(
                f"the trash keeps files of `hdfs dfs -rm` for {minutes:g} min; cpreplicate deletes"
                " without it",
                False,
            )

    def _snapshots(self, uri: str) -> Iterator[DeletePolicy]:
        """Yield the snapshottable directories at or above a URI.

        Only they have a `.snapshot`, by `FSDirStatAndListingOp.getFileInfo`.
        """
        for directory in uris.upwards(uri):
            snapshots = uris.join(directory, _SNAPSHOTS)
            if self.stat(snapshots) is not None:
                count = len(self.list(snapshots))
                yield DeletePolicy(
                    f"{directory} is snapshottable and has {counted(count, 'snapshot')}", True
                )

    def delete(
        self,
        uri: str,
        durable: bool = False,  # noqa: ARG002  # the edit log is synced before the answer
    ) -> bool:
        try:
            return self.delete_path(uri)
        except OSError as error:
            if error.errno == errno.ENOTEMPTY:
                raise IsADirectoryError(errno.EISDIR, "is a directory", uri) from error
            raise

    def rmdir(self, uri: str) -> bool:
        status = self.stat(uri)
        return status is not None and status.is_directory and self.rmdir_left(uri)

    def rmdir_left(self, uri: str) -> bool:
        try:
            return self.delete(uri)
        except IsADirectoryError:
            return False


def _is_asked(path: str, target_root: str) -> bool:
    """Return whether the quota of a directory is asked for: of the first level, TARGET_ROOT's."""
    return bool(path_of(uris.parent(path))) or path == target_root


class Usage(NamedTuple):
    """What a directory of HDFS uses of its quotas: names, and bytes times their replication."""

    name_quota: int
    names: int
    space_quota: int
    consumed: int

    def space(self, directory: str, replication: int) -> Iterator[Space]:
        """Yield what the quotas of a directory leave, if it has any."""
        if 0 <= self.space_quota < _UNLIMITED:
            left = max(0, self.space_quota - self.consumed) // replication
            yield Space(
                f"the space quota of {directory}, at replication {replication},", left, None
            )
        if 0 <= self.name_quota < _UNLIMITED:
            left = max(0, self.name_quota - self.names)
            yield Space(f"the quota of names of {directory}", None, left)


class Written(NamedTuple):
    """What new files have: None is the default of the cluster; `block_size` is in bytes."""

    permission: int
    replication: int | None
    block_size: int | None

    @property
    def expected_replication(self) -> int:
        """The replication factor that new files are expected to have."""
        return self.replication or HdfsClientStorage.replication

    def __str__(self) -> str:
        block = None if self.block_size is None else f"blocks of {self.block_size} bytes"
        factor = None if self.replication is None else f"replication {self.replication}"
        return ", ".join(filter(None, (f"permission {self.permission:04o}", factor, block)))


def uses_kerberos(options: Mapping[str, str]) -> bool:
    """Return whether Hadoop's configuration demands Kerberos."""
    return options.get("hadoop.security.authentication") == "kerberos"


def written_as(write: WriteSettings, options: Mapping[str, str]) -> Written:
    """Return what new files have by the options of the command and Hadoop's configuration.

    Raises `UsageError`.
    """
    replication = options.get("dfs.replication")
    if replication and not replication.isdecimal():
        raise UsageError(f"dfs.replication is {replication!r}: it must be a whole number")
    block_size = options.get("dfs.blocksize") or options.get("dfs.block.size")
    return Written(
        _NEW_FILE & ~_umask(options.get(_UMASK) or options.get("dfs.umaskmode") or "022"),
        write.replication or (int(replication) if replication else None),
        write.block_size or (_bytes(block_size) if block_size else None),
    )


def _umask(value: str) -> int:
    """Return a umask, which Hadoop takes as an octal number or as what it leaves: `u=rwx,g=rx,o=`.

    Raises `UsageError`.
    """
    if re.fullmatch("[0-7]{3,4}", value):
        return int(value, 8) & 0o777
    left = dict.fromkeys("ugo", 0)
    for clause in value.replace(" ", "").split(","):
        match = re.fullmatch("([ugoa]+)=([rwx]*)", clause)
        if match is None:
            raise UsageError(
                f"{_UMASK} is {value!r}: write it as in 027 or u=rwx,g=rx,o=. Nothing was done"
            )
        bits = sum(_BITS[letter] for letter in set(match[2]))
        left |= dict.fromkeys(match[1].replace("a", "ugo"), bits)
    return 0o777 & ~(left["u"] << 6 | left["g"] << 3 | left["o"])


def _bytes(value: str) -> int:
    """Return a number of bytes, as in `134217728` or `128m`. Raises `UsageError`."""
    match = re.fullmatch("([0-9]+)([kmgtpe]?)", value.strip().lower())
    if match is None:
        raise UsageError(f"dfs.blocksize is {value!r}: write it as in 134217728 or 128m")
    return int(match[1]) << (10 * (" kmgtpe".index(match[2] or " ")))


def path_of(uri: str) -> str:
    """Return the path part of a URI. Raises `Refused` if no filesystem could hold it."""
    refuse_unusable(uri)
    return uris.local_path(uri)
