"""What every client of HDFS has in common."""

from __future__ import annotations

import errno
from abc import abstractmethod

from cpreplicate.core import uri as uris
from cpreplicate.storage.backends.rename_commit import RenamingStorage
from cpreplicate.storage.base import refuse_unusable


class HdfsClientStorage(RenamingStorage):
    """A storage that a client of HDFS serves, whichever client it is."""

    put_calls = 4  # create, addBlock, complete, rename2

    @abstractmethod
    def delete_path(self, uri: str) -> bool:
        """Delete a file or an empty directory; return False if it was not there.

        Raises `OSError` with ENOTEMPTY for a directory that is not empty.
        """

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
        if status is None or not status.is_directory:
            return False
        try:
            return self.delete(uri)
        except IsADirectoryError:
            return False


def path_of(uri: str) -> str:
    """Return the path part of a URI. Raises `Refused` if no filesystem could hold it."""
    refuse_unusable(uri)
    return uris.local_path(uri)
