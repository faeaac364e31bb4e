"""Which fact each answer of the kernel is told as."""

from __future__ import annotations

import errno

import pytest

from workspace.confine import facts
from workspace.errors import (
    Busy,
    InvalidPath,
    IsAFile,
    MountInside,
    NoSpace,
    NoSuchFolder,
    NotPermitted,
    ReadOnly,
    WorkspaceError,
)


@pytest.mark.parametrize(
    ("code", "fact"),
    [
        (errno.ENOENT, NoSuchFolder),
        (errno.ESTALE, NoSuchFolder),
        (errno.ELOOP, IsAFile),
        (errno.ENOTDIR, IsAFile),
        (errno.EACCES, NotPermitted),
        (errno.EPERM, NotPermitted),
        (errno.EXDEV, MountInside),
        (errno.EBUSY, MountInside),
        (errno.ENOSPC, NoSpace),
        (errno.EDQUOT, NoSpace),
        (errno.EFBIG, NoSpace),
        (errno.EROFS, ReadOnly),
        (errno.EIO, ReadOnly),
        (errno.ENAMETOOLONG, InvalidPath),
        (errno.EAGAIN, Busy),
        (errno.EMFILE, Busy),
        (errno.ENFILE, Busy),
        (errno.ENOMEM, Busy),
    ],
    ids=lambda value: errno.errorcode[value] if isinstance(value, int) else value.__name__,
)
def test_an_answer_of_the_kernel_is_a_fact(code: int, fact: type[WorkspaceError]) -> None:
    with (
        pytest.raises(fact),
        facts("public/a", missing=NoSuchFolder, in_the_way=IsAFile, denied=NotPermitted),
    ):
        raise OSError(code, "")


def test_what_nobody_expects_stays_what_it_is() -> None:
    with pytest.raises(OSError, match="odd") as caught, facts("public/a"):
        raise OSError(errno.ENOTTY, "odd")
    assert caught.value.errno == errno.ENOTTY
