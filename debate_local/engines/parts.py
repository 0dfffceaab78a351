"""The files of the generation cache: SQLite parts, each with one writer, sealed when it is done.

Rule 1: a part has one writer, which holds SQLite's exclusive lock from the part's creation to its end. Until it is
sealed its name ends in `.live`. Write-ahead logging in exclusive locking mode needs no shared memory, so that a part
may lie on a network file system, and a `kill -9` loses nothing that was committed.
Rule 2: a sealed part never changes. It is one plain file, read without locks, and may be removed only when another
part holds all that it held.
Rule 3: a live part is touched by its writer only, until that one is gone: the next attempt of the same owner, or
anybody on the same host when the process is dead, seals it as soon as its lock can be had.
Rule 4: the part that comes first by name answers. A part gets its place in the order when it is sealed, so that what
was read once is read again.

Knows keys and completions; refuses to know engines, requests and what is still to be asked.
"""

import contextlib
import errno
import fcntl
import hashlib
import os
import re
import secrets
import shutil
import socket
import sqlite3
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote

import psutil

from debate_local.core.chat import Completion

FORMAT = 1
MANY_PARTS = 16
# Folding a large log in takes its time.
_SEALING_SECONDS = 60

Warn = Callable[[str], None]

_SCHEMA = f"""
CREATE TABLE facts(id INTEGER PRIMARY KEY, facts TEXT NOT NULL UNIQUE);
CREATE TABLE completions(id INTEGER PRIMARY KEY, key BLOB NOT NULL, facts INTEGER NOT NULL, body BLOB NOT NULL);
CREATE UNIQUE INDEX by_key ON completions(key);
PRAGMA user_version={FORMAT};
"""
# A few fixed lengths, so that the statements stay prepared.
_LOOKUPS = {
    count: f"SELECT key, facts, body FROM completions WHERE key IN ({','.join('?' * count)})" for count in (1, 32, 512)
}
_INSERT = "INSERT OR IGNORE INTO completions(key, facts, body) VALUES (?, 1, ?)"
_LIVE = re.compile(r"part-(?P<owner>[0-9a-f]{8})-(?P<pid>\d+)-[0-9a-f]{8}-(?P<host>.+)\.live")
_SEALED = re.compile(r"part-(?P<number>\d{8})-[0-9a-f]{8}\.sqlite")


class CacheFull(RuntimeError):
    """The cache cannot be written to. Everything committed before is kept, and a rerun goes on from there."""

    def __init__(self, folder: Path | None, error: Exception) -> None:
        super().__init__(
            f"cannot write to the cache in {folder or 'a temporary file'}: {error} (a full disk, a quota or a limit on "
            "file size). Everything stored so far is kept: make room or give another output folder, and run the same "
            "command again; it goes on from there. With cache=off nothing is written."
        )


class Stored(NamedTuple):
    """A completion from the store, and the facts (versions, speed settings) of the process that made it, as JSON."""

    completion: Completion
    facts: str


class _Unusable(Exception):
    """A file that cannot be used as a part. aside: it is broken and nothing will ever read it."""

    def __init__(self, reason: str, aside: bool) -> None:
        super().__init__(reason)
        self.aside = aside


class Store:
    """The completions of one engine identity: sealed parts to read, and a part of its own to write.

    folder None: nothing on disk is read or written, new completions live in SQLite's private temporary file. write
    False: parts are read and nothing in the folder is changed. owner: who the next attempt will call itself.
    """

    def __init__(self, folder: Path | None, owner: str, facts: str, warn: Warn, write: bool = True) -> None:
        self._folder, self._owner, self._facts, self._warn = folder, owner, facts, warn
        self._writes = write and folder is not None
        self._parts: list[_Part] = []
        self._unusable: set[Path] = set()
        self._own: _OwnPart | None = None
        if folder is not None and self._writes:
            with writing(folder):
                folder.mkdir(parents=True, exist_ok=True)
            adopt(folder, owner, warn)
            if len(sealed_parts(folder)) > MANY_PARTS:
                compact(folder, warn)
        self._open_parts()

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Stored]:
        """What is stored of these keys; sealed parts first, in order of name."""
        found: dict[bytes, Stored] = {}
        missing: Sequence[bytes] = keys
        for part in [*self._parts, *([self._own] if self._own else [])]:
            if not missing:
                break
            try:
                found.update(part.find(missing))
            except (_Unusable, sqlite3.DatabaseError) as error:
                self._drop(part, error)
                # Somebody may have merged it into another part; then the answer is there.
                self._open_parts()
                return {**found, **self.find([key for key in missing if key not in found])}
            missing = [key for key in missing if key not in found]
        return found

    def add(self, rows: Iterable[tuple[bytes, Completion]]) -> int:
        """Commit completions in one transaction; returns how many. Raises CacheFull: then none of them is stored."""
        bodies = [(key, completion.to_json().encode("utf-8", "surrogatepass")) for key, completion in rows]
        if bodies:
            with writing(self._folder):
                self._own = self._own or self._begin_part()
                self._own.add(bodies)
        return len(bodies)

    def close(self) -> None:
        """Seal the own part. When that fails (a full disk) it stays live, and the next attempt adopts it."""
        for part in self._parts:
            part.close()
        self._parts = []
        if self._own is not None:
            own, self._own = self._own, None
            own.close()
            if own.path is not None:
                _seal(own.path, self._warn)

    def _begin_part(self) -> "_OwnPart":
        """A new part. An attempt of the same owner, started meanwhile, may take it for a dead one: then another."""
        while True:
            try:
                own = _OwnPart(self._live_path(), self._facts)
            except sqlite3.OperationalError as error:
                if _code(error) != sqlite3.SQLITE_BUSY:
                    raise
                continue
            if own.path is None or own.path.exists():
                return own
            own.close()

    def _live_path(self) -> Path | None:
        if self._folder is None or not self._writes:
            return None
        return self._folder / f"part-{_tag(self._owner)}-{os.getpid()}-{secrets.token_hex(4)}-{_host()}.live"

    def _open_parts(self) -> None:
        """Open the sealed parts that are not open yet; list again when one vanished in between (it was merged)."""
        vanished = self._folder is not None
        while vanished and self._folder is not None:
            vanished = False
            opened = {part.path for part in self._parts}
            for path in sealed_parts(self._folder):
                if path not in opened and path not in self._unusable:
                    try:
                        self._parts.append(_Part(path))
                    except (_Unusable, sqlite3.DatabaseError) as error:
                        vanished = vanished or not path.exists()
                        self._refuse(path, error)
        self._parts.sort(key=lambda part: part.path.name)

    def _drop(self, part: "_Table", error: Exception) -> None:
        """Go on without a part that cannot be read."""
        if not isinstance(part, _Part):
            raise error
        self._parts.remove(part)
        part.close()
        self._refuse(part.path, error)

    def _refuse(self, path: Path, error: Exception) -> None:
        if path.exists():
            self._unusable.add(path)
            refuse(path, error, self._warn, move=self._writes)


class _Table:
    """A connection to the table of completions."""

    def __init__(self, db: sqlite3.Connection) -> None:
        self._db = db
        self._facts: dict[int, str] = {}

    def find(self, keys: Sequence[bytes]) -> dict[bytes, Stored]:
        """What this table holds of these keys."""
        found: dict[bytes, Stored] = {}
        for chunk in _chunks(keys):
            for key, facts, body in self._db.execute(_LOOKUPS[len(chunk)], chunk):
                found[bytes(key)] = Stored(_decode(body), self._facts.get(facts, "{}"))
        return found

    def close(self) -> None:
        self._db.close()


class _Part(_Table):
    """A sealed part, open for reading."""

    def __init__(self, path: Path) -> None:
        self.path = path
        super().__init__(_connect(path, "mode=ro&immutable=1"))
        try:
            _require_format(self._db)
            self._db.execute("PRAGMA cache_size=-8192")
            self._facts = dict(self._db.execute("SELECT id, facts FROM facts"))
        except BaseException:
            self._db.close()
            raise


class _OwnPart(_Table):
    """The part that this process writes. path None: SQLite's private temporary file."""

    def __init__(self, path: Path | None, facts: str) -> None:
        self.path = path
        super().__init__(_connect(path, "mode=rwc"))
        self._facts = {1: facts}
        try:
            # Before the first access, or SQLite would want shared memory for the log.
            self._db.execute("PRAGMA locking_mode=EXCLUSIVE")
            self._db.execute(f"PRAGMA journal_mode={'WAL' if path else 'OFF'}")
            self._db.execute(f"PRAGMA synchronous={'NORMAL' if path else 'OFF'}")
            self._db.execute("PRAGMA cache_size=-65536")
            self._db.executescript(f"BEGIN EXCLUSIVE; {_SCHEMA} COMMIT;")
            self._db.execute("INSERT INTO facts VALUES (1, ?)", (facts,))
        except BaseException as error:
            self._db.close()
            if path is not None and not isinstance(error, sqlite3.Error):
                # Told to stop before anything was in it: there is nothing to adopt.
                path.unlink(missing_ok=True)
            raise

    def add(self, bodies: Sequence[tuple[bytes, bytes]]) -> None:
        """Commit rows; on any error none of them is there."""
        self._db.execute("BEGIN")
        try:
            self._db.executemany(_INSERT, bodies)
            self._db.execute("COMMIT")
        except BaseException:
            if self._db.in_transaction:
                self._db.execute("ROLLBACK")
            raise


def sealed_parts(folder: Path) -> list[Path]:
    """The sealed parts of a folder, in the order in which they answer."""
    return sorted(path for path in folder.glob("part-*.sqlite") if _SEALED.fullmatch(path.name))


def live_parts(folder: Path) -> list[Path]:
    """The parts of a folder that are being written, or were when their writer died."""
    return sorted(path for path in folder.glob("part-*.live") if _LIVE.fullmatch(path.name))


def adopt(folder: Path, owner: str, warn: Warn) -> None:
    """Seal the live parts of this owner, and those of dead processes of this host, whose lock can be had."""
    for path in live_parts(folder):
        if (name := _LIVE.fullmatch(path.name)) is None:
            continue
        dead = name["host"] == _host() and not _alive(int(name["pid"]))
        if dead or name["owner"] == _tag(owner):
            _seal(path, warn)
        deadline = time.monotonic() + _SEALING_SECONDS
        # Busy although its writer is dead: somebody is sealing it, and what it holds would be asked again without it.
        while dead and int(name["pid"]) != os.getpid() and is_locked(path) and time.monotonic() < deadline:
            time.sleep(0.02)
            _seal(path, warn)


def is_locked(live: Path) -> bool:
    """Whether somebody is writing this live part."""
    try:
        with contextlib.closing(_connect(live, "mode=rw")) as db:
            db.execute("PRAGMA locking_mode=EXCLUSIVE")
            db.execute("BEGIN EXCLUSIVE")
    except sqlite3.DatabaseError as error:
        return _code(error) == sqlite3.SQLITE_BUSY
    return False


def count(sealed: Path) -> int:
    """How many completions a sealed part holds; 0 when it cannot be read."""
    try:
        part = _Part(sealed)
    except (_Unusable, sqlite3.DatabaseError):
        return 0
    with contextlib.closing(part._db) as db:
        return int(db.execute("SELECT count(*) FROM completions").fetchone()[0])


def compact(folder: Path, warn: Warn) -> None:
    """Merge all sealed parts into one; one process at a time, and not at all where that or the room is lacking.

    Killed at any moment, it leaves the old parts, the new one, or both, which is the same to a reader.
    """
    with _alone(folder / "compact.lock") as alone:
        if not alone:
            return
        for left_over in folder.glob("merge-*"):
            left_over.unlink(missing_ok=True)
        parts = sealed_parts(folder)
        if shutil.disk_usage(folder).free < 2 * sum(part.stat().st_size for part in parts):
            return  # many parts are slower than one; a full disk is worse
        merged = folder / f"merge-{secrets.token_hex(4)}"
        try:
            merging = None
            with writing(folder), contextlib.closing(_connect(merged, "mode=rwc")) as db:
                db.executescript(
                    f"PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF; PRAGMA cache_size=-65536; {_SCHEMA}"
                )
                for merging in parts:
                    _merge(db, merging)
            _sync(merged)
            # The number of the newest: what is sealed from now on comes after it.
            last = _SEALED.fullmatch(parts[-1].name)
            merged.replace(folder / _sealed_name(int(last["number"]) if last else 0))
            _sync(folder)
        except (_Unusable, sqlite3.DatabaseError) as error:
            if merging is not None:
                refuse(merging, error, warn, move=True)
        except (CacheFull, OSError) as error:
            warn(f"the {len(parts)} parts of the cache in {folder} could not be merged into one: {error}")
        else:
            for part in parts:
                part.unlink(missing_ok=True)
        finally:
            merged.unlink(missing_ok=True)


def refuse(path: Path, error: Exception, warn: Warn, move: bool) -> None:
    """Record that a part is not used; move: rename it when it is broken, so that nobody stumbles over it again."""
    text = f"the cache part {path} is not used: {error}."
    broken = error.aside if isinstance(error, _Unusable) else _code(error) in _BROKEN
    if broken and move:
        aside = path.with_name(f"{path.name}.corrupt")
        with contextlib.suppress(OSError):
            path.replace(aside)
            text += f" It was set aside as {aside.name}."
            path.with_name(f"{path.name}-wal").replace(f"{aside}-wal")
    warn(f"{text} What it held is asked again.")


# SQLITE_ERROR: a database, but without our tables.
_BROKEN = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB, sqlite3.SQLITE_ERROR)


def _merge(db: sqlite3.Connection, part: Path) -> None:
    """Copy a part's rows; a key that is there already keeps its older completion."""
    db.execute("ATTACH ? AS part", (_uri(part, "mode=ro&immutable=1"),))
    try:
        _require_format(db, "part.")
        db.execute("BEGIN")
        db.execute("INSERT OR IGNORE INTO main.facts(facts) SELECT facts FROM part.facts ORDER BY id")
        db.execute(
            "INSERT OR IGNORE INTO main.completions(key, facts, body) "
            "SELECT c.key, mine.id, c.body FROM part.completions c JOIN part.facts theirs ON theirs.id = c.facts "
            "JOIN main.facts mine ON mine.facts = theirs.facts ORDER BY c.id"
        )
        db.execute("COMMIT")
    finally:
        if not db.in_transaction:
            db.execute("DETACH part")


def _seal(live: Path, warn: Warn) -> None:
    """Make a live part that nobody writes one plain file and give it its place among the sealed ones."""
    try:
        with contextlib.closing(_connect(live, "mode=rw")) as db:
            db.execute("PRAGMA locking_mode=EXCLUSIVE")
            db.execute("BEGIN EXCLUSIVE")
            tables = {name for (name,) in db.execute("SELECT name FROM sqlite_master")}
            empty = not tables or db.execute("SELECT count(*) FROM completions").fetchone()[0] == 0
            db.execute("COMMIT")
            if empty:
                # While the lock is held: its creator, should it be alive, sees that the file is gone.
                live.unlink(missing_ok=True)
                return
            db.execute("PRAGMA journal_mode=DELETE")
        _sync(live)
        live.replace(live.with_name(_sealed_name(1 + _last_number(live.parent))))
        _sync(live.parent)
    except FileNotFoundError:
        return  # somebody else has sealed it
    except (sqlite3.DatabaseError, OSError) as error:
        if not live.exists() or _code(error) == sqlite3.SQLITE_BUSY:
            return
        if _code(error) in _BROKEN:
            refuse(live, error, warn, move=True)
        else:
            warn(f"the cache part {live} could not be sealed: {error}. It is kept, and the next run tries again.")


def _connect(path: Path | None, how: str) -> sqlite3.Connection:
    # Transactions are ours to begin; a lock that is not free is somebody else's, so there is nothing to wait for.
    target = _uri(path, how) if path else ""
    return sqlite3.connect(target, uri=True, isolation_level=None, timeout=0, check_same_thread=False)


def _uri(path: Path, how: str) -> str:
    return f"file:{quote(str(path.absolute()))}?{how}"


def _require_format(db: sqlite3.Connection, schema: str = "") -> None:
    version = db.execute(f"PRAGMA {schema}user_version").fetchone()[0]
    if version > FORMAT:
        raise _Unusable(f"its format {version} is newer than the {FORMAT} that this debate-local knows", aside=False)
    if version < FORMAT:
        raise _Unusable("it is no part of a cache", aside=True)


def _decode(body: bytes) -> Completion:
    try:
        return Completion.from_json(body.decode("utf-8", "surrogatepass"))
    except TypeError as error:
        raise _Unusable(f"a newer version of debate-local wrote it ({error})", aside=False) from error
    except (ValueError, AttributeError) as error:
        raise _Unusable(f"a completion in it cannot be read ({error})", aside=True) from error


def _chunks(keys: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    """Keys in lists of the prepared lengths, the last one filled up with a key that is in it already."""
    largest = max(_LOOKUPS)
    for start in range(0, len(keys), largest):
        chunk = keys[start : start + largest]
        length = next(count for count in sorted(_LOOKUPS) if count >= len(chunk))
        yield [*chunk, *[chunk[-1]] * (length - len(chunk))]


@contextlib.contextmanager
def writing(folder: Path | None) -> Iterator[None]:
    """Turn the many faces of a full disk into CacheFull."""
    try:
        yield
    except sqlite3.OperationalError as error:
        # SQLite calls a file-size limit or a quota an input/output error.
        if _code(error) not in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
            raise
        raise CacheFull(folder, error) from error
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EFBIG, errno.EDQUOT):
            raise
        raise CacheFull(folder, error) from error


@contextlib.contextmanager
def _alone(lock: Path) -> Iterator[bool]:
    """Whether this process holds the lock file; False at once when another does or the file system has no locks."""
    with contextlib.ExitStack() as stack:
        try:
            file = stack.enter_context(lock.open("a"))
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
        except OSError:
            alone = False
        yield alone


def _code(error: BaseException) -> int | None:
    """SQLite's primary result code."""
    code = getattr(error, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _last_number(folder: Path) -> int:
    names = [_SEALED.fullmatch(path.name) for path in sealed_parts(folder)]
    return max((int(name["number"]) for name in names if name), default=0)


def _sealed_name(number: int) -> str:
    return f"part-{number:08d}-{secrets.token_hex(4)}.sqlite"


def _tag(owner: str) -> str:
    return hashlib.blake2b(owner.encode("utf-8", "surrogatepass"), digest_size=4).hexdigest()


def _host() -> str:
    return re.sub(r"[^A-Za-z0-9_.-]", "_", socket.gethostname()) or "unknown"


def _alive(pid: int) -> bool:
    """Whether a process runs under this number. This process does not count: its parts are locked anyway, and in a
    container the next attempt has the number of the last.
    """
    return pid != os.getpid() and bool(psutil.pid_exists(pid))
