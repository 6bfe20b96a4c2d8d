"""What other programs use, and the command line itself.

    from cpreplicate import Checkpoint, Place, SyncOptions, plan, sync, verify, status

These functions run the operations. They raise the errors of `cpreplicate.errors`, print nothing,
and handle no signal: the caller's `Cancellation` ends them. Those that take a `Place` are for other
programs. The command line calls those that the former call, with what its options say.
"""
