"""One workspace on the disk: how its folders are opened and made. Runs on agent threads only."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import dataclass

from workspace import confine, landlock
from workspace.confine import FOLDER, closing, facts, open_at
from workspace.errors import (
    IsAFile,
    NoSuchFolder,
    NotPermitted,
    NotReadable,
    PublicIsNotAFolder,
    WorkspaceError,
)
from workspace.legacy import LegacyDirectory
from workspace.names import require_clean
from workspace.paths import ATTACHMENTS, PUBLIC, RelPath, display
from workspace.rights import Rights
from workspace.settings import AgentTree

_MEMBER_MODE = 0o755
_OTHERS_WRITE = 0o022


@dataclass(frozen=True, slots=True)
class WorkspaceDirectory:
    """Opens ``root`` (from ``location.project_root``) below the tree, afresh for each operation.

    Every descriptor that is returned is the caller's to close. Whoever opens or makes the public directory first
    has its ``legacy`` one migrated, if there is any.
    """

    tree: AgentTree
    root: RelPath
    rights: Rights
    legacy: LegacyDirectory | None = None

    def open(self) -> int:
        """The workspace, as a name only. Raises NoSuchFolder, Replaced on a thread that is confined to another one.

        The way down to it is opened with the service's rights: it is the operator's and the service's own, the
        agent sees it through a mount and may not reach it here. All below is opened with the agent's.
        """
        with (
            self.rights.service(),
            _folder_facts(PUBLIC, NotPermitted),
            closing(confine.open_tree(self.tree.root)) as tree,
        ):
            workspace = open_at(tree, self.root.segments, os.O_PATH | os.O_DIRECTORY, one_mount=False)
        try:
            landlock.require_workspace(workspace)
        except BaseException:
            os.close(workspace)
            raise
        return workspace

    def confine_thread(self, open_locks: Callable[[], int] | None = None) -> None:
        """Leave this thread nothing but the workspace, for good, if the kernel can and the workspace is there.

        ``open_locks`` opens a directory of the service's own in which it still makes and locks files.
        """
        if landlock.is_confined() or not landlock.is_available():
            return
        try:
            workspace = self.open()
        except WorkspaceError:
            return  # what keeps the job from its workspace is the job's to tell
        with closing(workspace), ExitStack() as stack:
            locks = None
            if open_locks:
                with self.rights.service(), suppress(OSError):  # without it there are no locks
                    locks = stack.enter_context(closing(open_locks()))
            landlock.confine_this_thread(workspace, locks)

    def open_public(self) -> int:
        """The public directory. Raises NoSuchFolder, PublicIsNotAFolder, NotReadable, MountInside."""
        with (
            closing(self._open_migrated()) as workspace,
            _folder_facts(PUBLIC, NotReadable, lambda _: PublicIsNotAFolder()),
        ):
            return open_at(workspace, (PUBLIC,), FOLDER)

    def open_folder(self, path: RelPath) -> int:
        """A folder below the public directory. Raises as ``open_public``, and IsAFile."""
        with closing(self.open_public()) as public, _folder_facts(display(path), NotReadable):
            return open_at(public, path.segments, FOLDER)

    def make_folder(self, path: RelPath) -> int:
        """The folder, made with its parents where they are missing.

        Raises as ``open_folder``, InvalidName for a missing segment that is not clean, NotPermitted, NoSpace.
        """
        folder = self.open_public()
        for depth, name in enumerate(path.segments, start=1):
            shown = display(RelPath(path.segments[:depth]))
            with closing(folder) as parent:
                folder = self._open_or_make(parent, name, shown)
        return folder

    def make_public(self) -> None:
        """Make what is missing of the public directory and the deliveries' directory in it.

        Raises NoSuchFolder without a workspace, NotPermitted, also if it is still the service's own, NoSpace,
        ReadOnly, PublicIsNotAFolder.
        """
        with closing(self._open_migrated()) as workspace:
            if self._is_not_given_yet(workspace):
                raise NotPermitted(PUBLIC)
            public = self._open_or_make(workspace, PUBLIC, PUBLIC, lambda _: PublicIsNotAFolder())
            # What lies in the place of the deliveries' directory hinders deliveries, which say so; not uploads.
            with closing(public), suppress(IsAFile):
                os.close(self._open_or_make(public, ATTACHMENTS, display(RelPath((ATTACHMENTS,)))))

    def _open_migrated(self) -> int:
        workspace = self.open()
        if self.legacy:
            try:
                self.legacy.migrate(workspace)
            except BaseException:
                os.close(workspace)
                raise
        return workspace

    def make_workspace(self) -> None:
        """Make the workspace and the member's folder that it lies in. Not for a confined thread.

        Raises NoSuchFolder when the tree itself is missing, NotPermitted, NoSpace, ReadOnly.
        """
        member_name, name = self.root.segments
        with self.rights.service(), _folder_facts(PUBLIC, NotPermitted):
            with closing(confine.open_tree(self.tree.root)) as tree:
                made = _mkdir(tree, member_name, _MEMBER_MODE)
                member = open_at(tree, (member_name,), FOLDER, one_mount=False)
            with closing(member):
                if made:
                    os.fchmod(member, _MEMBER_MODE)
                if _is_the_services_alone(member):
                    self._give_workspace(member, name)
                    return
        # Somebody else may rename things in this folder: the service makes nothing there that it would give away.
        with closing(self.open_member()) as member, _folder_facts(PUBLIC, NotPermitted):
            _mkdir(member, name, self.tree.dir_mode)

    def open_member(self) -> int:
        """The folder that holds the member's workspaces, as a name only. Raises NoSuchFolder."""
        with (
            self.rights.service(),
            _folder_facts(PUBLIC, NotPermitted),
            closing(confine.open_tree(self.tree.root)) as tree,
        ):
            return open_at(tree, self.root.segments[:1], os.O_PATH | os.O_DIRECTORY, one_mount=False)

    def _give_workspace(self, member: int, name: str) -> None:
        """Also one that an earlier run made and did not live to give away."""
        _mkdir(member, name, self.tree.dir_mode)
        with closing(open_at(member, (name,), os.O_PATH | os.O_DIRECTORY, one_mount=False)) as workspace:
            is_ours = self._is_not_given_yet(workspace)
        if is_ours:
            # The mode first: the service may have no right to change it once the folder is the agent's.
            os.chmod(name, self.tree.dir_mode, dir_fd=member)
            os.chown(name, self.tree.uid, self.tree.gid, dir_fd=member, follow_symlinks=False)

    def _is_not_given_yet(self, workspace: int) -> bool:
        return os.fstat(workspace).st_uid == os.geteuid() != self.tree.uid

    def _open_or_make(
        self, parent: int, name: str, shown: str, in_the_way: Callable[[str], WorkspaceError] = IsAFile
    ) -> int:
        try:
            with _folder_facts(shown, NotPermitted, in_the_way):
                return open_at(parent, (name,), FOLDER)
        except NoSuchFolder:
            require_clean(name)
        with _folder_facts(shown, NotPermitted, in_the_way):
            made = _mkdir(parent, name, self.tree.dir_mode)
            folder = open_at(parent, (name,), FOLDER)
            if made:
                os.fchmod(folder, self.tree.dir_mode)  # mkdir's mode went through the umask
            return folder


def same_folder(one: int, other: int) -> bool:
    """Whether two descriptors hold the same directory."""
    return os.path.sameopenfile(one, other)


def _folder_facts(
    shown: str, denied: Callable[[str], WorkspaceError], in_the_way: Callable[[str], WorkspaceError] = IsAFile
) -> AbstractContextManager[None]:
    return facts(shown, missing=NoSuchFolder, in_the_way=in_the_way, denied=denied)


def _mkdir(parent: int, name: str, mode: int) -> bool:
    """Whether it was made now: anything that has the name already is left to whoever opens it."""
    try:
        os.mkdir(name, mode, dir_fd=parent)
    except FileExistsError:
        return False
    return True


def _is_the_services_alone(folder: int) -> bool:
    status = os.fstat(folder)
    return status.st_uid == os.geteuid() and not stat.S_IMODE(status.st_mode) & _OTHERS_WRITE
