"""What other programs use. It has no part in the command line: both call the operations.

    from cpreplicate import Checkpoint, Place, SyncOptions, plan, sync, verify, status

These functions run the operations. They raise the errors of `cpreplicate.errors`, print nothing,
and handle no signal: the caller's `Cancellation` ends them.
"""
