"""The files of a join: a copy of each former file is kept, so that leaving puts back exactly that."""

from __future__ import annotations

import contextlib
import os
import stat
import tempfile
from pathlib import Path

import msgspec

from foliot.settings import SettingsError

_RECORD = "etc/foliot/joined.json"


class _Access(msgspec.Struct, frozen=True, array_like=True):
    mode: int
    owner: int
    group: int


class _Before(msgspec.Struct, frozen=True):
    """The state before the first join."""

    files: dict[str, str | None] = {}
    """Text by path, None: no file."""
    access: dict[str, _Access] = {}
    folders: tuple[str, ...] = ()
    """Folders that were made, outermost first."""


class Files:
    """Files and links below a root. Paths are given without a leading slash.

    Raises:
        PermissionError: to write and to put back need root.
    """

    def __init__(self, root: Path) -> None:
        self.root = root
        self._wanted: dict[str, tuple[str, int]] = {}
        self._links: dict[str, str] = {}
        self._unwanted: set[str] = set()

    def want(self, path: str, text: str, mode: int = 0o644) -> None:
        """Wants this file with this text and mode; of a present file's narrower mode, only what both permit."""
        self._wanted[path] = (text, mode)

    def want_link(self, path: str, target: str) -> None:
        """Wants this symbolic link."""
        self._links[path] = target

    def unwant(self, path: str) -> None:
        """Wants this file as it was before an earlier join wrote it, if one did."""
        self._unwanted.add(path)

    def read(self, path: str) -> str | None:
        """A file's text; None: there is no such file.

        Raises:
            SettingsError: it holds no text.
        """
        try:
            return (self.root / path).read_text()
        except FileNotFoundError:
            return None
        except UnicodeDecodeError as error:
            raise SettingsError(f"{self.root / path}: is no text ({error}); put it right, and try again") from error

    def is_for_all(self, path: str) -> bool:
        """Whether everybody may read a file, or may once it is made."""
        access = self._access(path)
        return access is None or bool(access.mode & stat.S_IROTH)

    def missing(self) -> tuple[str, ...]:
        """The files that are not as wanted."""
        files = [path for path, (text, _) in self._wanted.items() if self._readable(path) != text]
        return (*files, *(path for path, target in self._links.items() if self._target(path) != target))

    def stale(self) -> tuple[str, ...]:
        """The files of an earlier join that are no longer wanted; none where they cannot be read."""
        try:
            return tuple(path for path in self._before().files if path in self._unwanted)
        except PermissionError:
            return ()

    def steps(self) -> tuple[str, ...]:
        """The steps of `put`, a line each."""
        missing, stale = self.missing(), self.stale()
        written = (*missing, _RECORD) if missing or stale else ()
        before = self._before().files if stale else {}
        return (*(f"write {self.root / path}" for path in written), *(self._back(path, before[path]) for path in stale))

    def check(self) -> None:
        """Makes sure, without a trace, that what is missing could be written; OSError: it could not."""
        changed = (*self.missing(), *self.stale())
        for path in (_RECORD, *changed) if changed else ():
            folder = next(each for each in (self.root / path).parents if each.exists())
            try:
                with tempfile.TemporaryFile(dir=folder):
                    pass
            except OSError as error:
                raise OSError(error.errno, error.strerror, str(self.root / path)) from error

    def put(self) -> None:
        """Makes all files as they shall be."""
        missing, stale = self.missing(), self.stale()
        if not missing and not stale:
            return
        before = self._before()
        files = {**{path: self._readable(path) for path in missing}, **before.files}
        access = {path: there for path in missing if (there := self._access(path)) and path not in before.files}
        access |= before.access
        folders = dict.fromkeys(
            (*before.folders, *(each for path in (_RECORD, *missing) for each in self._to_make(path)))
        )
        for folder in folders:
            (self.root / folder).mkdir(mode=0o755, exist_ok=True)
        record = _Before(files, access, tuple(folders))
        self._keep(record)
        for path in missing:
            if path in self._wanted:
                text, mode = self._wanted[path]
                self._write(path, text, self._narrowed(path, mode))
            else:
                (self.root / path).unlink(missing_ok=True)
                (self.root / path).symlink_to(self._links[path])
        for path in stale:
            self._restore(path, record)
        if stale:
            self._keep(self._without(stale, record))

    def steps_back(self) -> tuple[str, ...]:
        """The steps of `put_back`, a line each; none: no join has written anything here."""
        files = self._before().files
        record = (self._back(_RECORD, None),) if (self.root / _RECORD).exists() else ()
        return (*(self._back(path, text) for path, text in files.items()), *record)

    def put_back(self) -> None:
        """Makes everything as it was before the first join."""
        before = self._before()
        for path in before.files:
            self._restore(path, before)
        (self.root / _RECORD).unlink(missing_ok=True)
        for folder in reversed(before.folders):
            with contextlib.suppress(OSError):  # somebody else put something there
                (self.root / folder).rmdir()

    def check_record(self) -> None:
        """Makes sure that what was there before the first join can be told, as far as we may look.

        Raises:
            SettingsError: it cannot.
        """
        with contextlib.suppress(PermissionError):
            self._before()

    def _before(self) -> _Before:
        try:
            return msgspec.json.decode((self.root / _RECORD).read_bytes(), type=_Before)
        except FileNotFoundError:
            return _Before()
        except (IsADirectoryError, msgspec.DecodeError, RecursionError) as error:
            raise SettingsError(
                f"{self.root / _RECORD}: is broken ({error}). It says what was there before the first join: "
                "put it back from a copy. Or delete it, and what is there now counts as there before: leaving then "
                "removes no file that join has written so far (in /etc/foliot, and foliot-* in /etc/systemd/system). "
                "Nothing was changed"
            ) from error

    def _keep(self, record: _Before) -> None:
        text = msgspec.json.format(msgspec.json.encode(record)).decode()
        self._write(_RECORD, text, _Access(0o600, os.geteuid(), os.getegid()))

    def _without(self, paths: tuple[str, ...], record: _Before) -> _Before:
        """The record once these files are as before the first join. It also removes folders that held nothing else."""
        gone = set()
        for folder in reversed(record.folders):
            if any(Path(path).is_relative_to(folder) for path in paths):
                with contextlib.suppress(OSError):  # it holds something else
                    (self.root / folder).rmdir()
                    gone.add(folder)
        return _Before(
            {path: text for path, text in record.files.items() if path not in paths},
            {path: access for path, access in record.access.items() if path not in paths},
            tuple(folder for folder in record.folders if folder not in gone),
        )

    def _restore(self, path: str, before: _Before) -> None:
        text = before.files[path]
        if text is None:
            (self.root / path).unlink(missing_ok=True)
        else:
            # A record of an earlier version says nothing of access: then nobody gets more than now.
            self._write(path, text, before.access.get(path) or self._narrowed(path, 0o644))

    def _back(self, path: str, before: str | None) -> str:
        return f"{'remove' if before is None else 'put back'} {self.root / path}"

    def _readable(self, path: str) -> str | None:
        """As `read`, but what only root may read counts as missing."""
        try:
            return self.read(path)
        except PermissionError:
            return None

    def _target(self, path: str) -> str | None:
        try:
            return str((self.root / path).readlink())
        except OSError:
            return None

    def _to_make(self, path: str) -> list[str]:
        parents = [str(parent) for parent in (self.root / path).relative_to(self.root).parents][:-1]
        return [parent for parent in reversed(parents) if not (self.root / parent).is_dir()]

    def _access(self, path: str) -> _Access | None:
        """The access to a file; None: there is no file."""
        try:
            found = (self.root / path).stat()
        except FileNotFoundError:
            return None
        return _Access(stat.S_IMODE(found.st_mode), found.st_uid, found.st_gid) if stat.S_ISREG(found.st_mode) else None

    def _narrowed(self, path: str, mode: int) -> _Access:
        """Access by this mode, but none for those who have none to the present file."""
        present = self._access(path)
        if present is None:
            return _Access(mode, os.geteuid(), os.getegid())
        return msgspec.structs.replace(present, mode=mode & present.mode)

    def _write(self, path: str, text: str, access: _Access) -> None:
        """Writes all of a text or nothing, whatever happens meanwhile, also to the power."""
        written = self.root / f"{path}.new"
        try:
            written.unlink(missing_ok=True)
            with os.fdopen(os.open(written, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
                os.fchown(file.fileno(), access.owner, access.group)
                os.fchmod(file.fileno(), access.mode)
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            written.replace(self.root / path)
        except OSError as error:
            with contextlib.suppress(OSError):
                written.unlink()
            raise OSError(error.errno, error.strerror, str(self.root / path)) from error
