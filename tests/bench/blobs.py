"""Turns a file tree into a layer's blob: gzip, zstd, eStargz, zstd:chunked or a plain tar.

The tar is what image builders write: sorted, hard links kept, holes as zeros, an overlay's
whiteouts as `.wh.` entries. One pass; digests of tar and blob are taken on the way.
"""

import ctypes
import ctypes.util
import dataclasses
import hashlib
import json
import os
import stat
import struct
import subprocess
import tarfile
import zlib

from lab import SYSTEM_PATH, Failed

MIB = 1 << 20
BLOCK = 512
CHUNK_BYTES = 4 * MIB  # of eStargz and zstd:chunked
GZIP_LEVEL = 6
ZSTD_LEVEL = 3
TAR = "application/vnd.oci.image.layer.v1.tar"
FORMS = ("gzip", "zstd", "zstd-sized", "estargz", "zstd:chunked", "tar")
STARGZ_TOC = "stargz.index.json"
NO_PREFETCH = ".no.prefetch.landmark"


@dataclasses.dataclass
class Blob:
    """A layer as a manifest and a config name it."""

    digest: str
    diff_id: str
    compressed_bytes: int
    tar_bytes: int
    media_type: str
    annotations: dict


class Hashing:
    """A file that is written to: counts and hashes."""

    def __init__(self, file=None):
        self._file, self._hash, self.size = file, hashlib.sha256(), 0

    def write(self, data):
        self._hash.update(data)
        self.size += len(data)
        if self._file is not None:
            self._file.write(data)

    @property
    def digest(self):
        return "sha256:" + self._hash.hexdigest()


class Gzip:
    """One member, as Go's and Docker's writers make it."""

    def __init__(self, out, level=GZIP_LEVEL):
        self._out = out
        self._packer = zlib.compressobj(level, zlib.DEFLATED, 31)

    def write(self, data):
        self._out.write(self._packer.compress(data))

    def close(self):
        self._out.write(self._packer.flush())


class Zstd:
    """The command line tool; its frame has a content size only where that is told before."""

    def __init__(self, out, size=None):
        sized = [f"--stream-size={size}"] if size is not None else []
        self._out = out
        self._tool = subprocess.Popen(["zstd", "-q", f"-{ZSTD_LEVEL}", *sized, "-c"],
                                      stdin=subprocess.PIPE, stdout=out.fileno(),
                                      env={"PATH": SYSTEM_PATH})

    def write(self, data):
        self._tool.stdin.write(data)

    def close(self):
        self._tool.stdin.close()
        if self._tool.wait() != 0:
            raise Failed("zstd failed")


class Plain:
    def __init__(self, out):
        self.write = out.write

    def close(self):
        pass


class LibZstd:
    """Whole frames in memory: a chunk each."""

    def __init__(self):
        self._lib = ctypes.CDLL(ctypes.util.find_library("zstd") or "libzstd.so.1")
        for name in ("ZSTD_compress", "ZSTD_compressBound"):
            getattr(self._lib, name).restype = ctypes.c_size_t

    def frame(self, data):
        room = self._lib.ZSTD_compressBound(ctypes.c_size_t(len(data)))
        out = ctypes.create_string_buffer(room)
        size = self._lib.ZSTD_compress(out, ctypes.c_size_t(room), data,
                                       ctypes.c_size_t(len(data)), ZSTD_LEVEL)
        if size > room:  # an error code
            raise Failed("libzstd can't compress")
        return out.raw[:size]


def gzip_member(data):
    packer = zlib.compressobj(GZIP_LEVEL, zlib.DEFLATED, 31)
    return packer.compress(data) + packer.flush()


def entries(tree):
    """(header, path of the content or None) of everything in a tree, parents first."""
    seen = {}  # the first name of each file with several

    def visit(folder, prefix):
        for name in sorted(os.listdir(folder)):
            path, inside = os.path.join(folder, name), prefix + name
            status = os.lstat(path)
            if stat.S_ISCHR(status.st_mode) and status.st_rdev == 0:
                yield header(f"{prefix}.wh.{name}", status, tarfile.REGTYPE), None
            elif stat.S_ISDIR(status.st_mode):
                yield header(inside, status, tarfile.DIRTYPE), None
                if is_opaque(path):
                    yield header(f"{inside}/.wh..wh..opq", status, tarfile.REGTYPE), None
                yield from visit(path, inside + "/")
            else:
                yield leaf(path, inside, status, seen)
    yield from visit(tree, "")


def leaf(path, inside, status, seen):
    if stat.S_ISLNK(status.st_mode):
        entry = header(inside, status, tarfile.SYMTYPE)
        entry.linkname = os.readlink(path)
        return entry, None
    if stat.S_ISCHR(status.st_mode):
        entry = header(inside, status, tarfile.CHRTYPE)
        entry.devmajor, entry.devminor = os.major(status.st_rdev), os.minor(status.st_rdev)
        return entry, None
    if not stat.S_ISREG(status.st_mode):
        return header(inside, status, tarfile.FIFOTYPE), None
    if status.st_nlink > 1:
        first = seen.setdefault((status.st_dev, status.st_ino), inside)
        if first != inside:
            entry = header(inside, status, tarfile.LNKTYPE)
            entry.linkname = first
            return entry, None
    entry = header(inside, status, tarfile.REGTYPE)
    entry.size = status.st_size
    return entry, path


def header(name, status, kind):
    entry = tarfile.TarInfo(name)
    entry.type, entry.mode = kind, stat.S_IMODE(status.st_mode)
    entry.uid, entry.gid, entry.mtime = status.st_uid, status.st_gid, int(status.st_mtime)
    return entry


def is_opaque(path):
    try:
        return os.getxattr(path, "trusted.overlay.opaque", follow_symlinks=False) == b"y"
    except OSError:
        return False


def header_bytes(entry):
    return entry.tobuf(tarfile.PAX_FORMAT, "utf-8", "surrogateescape")


def tar_size(tree):
    return sum(len(header_bytes(entry)) + (entry.size + BLOCK - 1) // BLOCK * BLOCK
               for entry, _ in entries(tree)) + 2 * BLOCK


def content(path, size):
    """The bytes of a file in pieces, exactly `size` of them."""
    if path is None or size == 0:
        return
    with open(path, "rb") as file:
        left = size
        while left > 0:
            piece = file.read(min(left, CHUNK_BYTES))
            if not piece:
                raise Failed(f"{path} has shrunk")
            left -= len(piece)
            yield piece


def write_stream(tree, form, out):
    """A blob that is one stream; returns the tar's hash."""
    tar = Hashing()
    packer = {"gzip": lambda: Gzip(out), "tar": lambda: Plain(out), "zstd": lambda: Zstd(out),
              "zstd-sized": lambda: Zstd(out, tar_size(tree))}[form]()

    def put(data):
        tar.write(data)
        packer.write(data)
    for entry, path in entries(tree):
        put(header_bytes(entry))
        for piece in content(path, entry.size):
            put(piece)
        put(bytes(-entry.size % BLOCK))
    put(bytes(2 * BLOCK))
    packer.close()
    return tar


class Indexed:
    """A blob of one gzip member or zstd frame for each chunk, and a table of contents behind."""

    def __init__(self, tree, form, out):
        self._tree, self._out = tree, out
        self._pack = gzip_member if form == "estargz" else LibZstd().frame
        self._tar = Hashing()
        self._waiting = b""  # headers and padding up to the next chunk
        self._toc = []
        self._form = form

    def write(self):
        """Returns the tar's hash and the layer's annotations."""
        for entry, path in entries(self._tree):
            self._add(entry, content(path, entry.size))
        if self._form == "estargz":
            mark = tarfile.TarInfo(NO_PREFETCH)
            mark.size, mark.mode = 1, 0o644
            self._add(mark, [b"\x0f"])
            annotations = self._end_stargz()
        else:
            self._waiting += bytes(2 * BLOCK)
            self._flush()
            annotations = self._end_chunked()
        return self._tar, annotations

    def _flush(self):
        if self._waiting:
            self._put(self._waiting)
            self._waiting = b""

    def _put(self, data):
        self._tar.write(data)
        self._out.write(self._pack(data))

    def _add(self, entry, pieces):
        self._waiting += header_bytes(entry)
        offset, whole, chunks = 0, hashlib.sha256(), []
        for piece in pieces:
            self._flush()
            chunks.append({"name": entry.name, "type": "chunk", "offset": self._out.size,
                           "chunkOffset": offset, "chunkSize": len(piece),
                           "chunkDigest": "sha256:" + hashlib.sha256(piece).hexdigest()})
            self._put(piece)
            whole.update(piece)
            offset += len(piece)
        self._waiting += bytes(-entry.size % BLOCK)
        first = self._describe(entry)
        if chunks:
            chunks[0] = {**chunks[0], **first, "digest": "sha256:" + whole.hexdigest()}
            if len(chunks) == 1:
                del chunks[0]["chunkSize"]
            self._toc += chunks
        else:
            self._toc.append(first)

    @staticmethod
    def _describe(entry):
        kind = {tarfile.DIRTYPE: "dir", tarfile.SYMTYPE: "symlink", tarfile.LNKTYPE: "hardlink",
                tarfile.CHRTYPE: "char", tarfile.FIFOTYPE: "fifo"}.get(entry.type, "reg")
        told = {"name": entry.name + ("/" if kind == "dir" else ""), "type": kind,
                "mode": entry.mode, "modtime": "2026-01-01T00:00:00Z"}
        for key, value in (("size", entry.size), ("linkName", entry.linkname),
                           ("uid", entry.uid), ("gid", entry.gid), ("devMajor", entry.devmajor),
                           ("devMinor", entry.devminor)):
            if value:
                told[key] = value
        return told

    def _json(self):
        return json.dumps({"version": 1, "entries": self._toc},
                          separators=(",", ":")).encode("utf-8", "replace")

    def _end_stargz(self):
        toc = self._json()
        self._flush()
        offset = self._out.size
        entry = tarfile.TarInfo(STARGZ_TOC)
        entry.size = len(toc)
        self._put(header_bytes(entry) + toc + bytes(-len(toc) % BLOCK) + bytes(2 * BLOCK))
        self._out.write(b"\x1f\x8b\x08\x04" + bytes(5) + b"\xff\x1a\x00SG\x16\x00"
                        + b"%016xSTARGZ" % offset + b"\x01\x00\x00\xff\xff" + bytes(8))
        return {"containerd.io/snapshot/stargz/toc.digest":
                "sha256:" + hashlib.sha256(toc).hexdigest(),
                "io.containers.estargz.uncompressed-size": str(self._tar.size)}

    def _end_chunked(self):
        toc = self._json()
        packed = self._pack(toc)
        offset = self._out.size + 8
        footer = struct.pack("<7Q", offset, len(packed), len(toc), 1, 0, 0, 0) + b"GNUlInUx"
        for frame in (packed, footer):
            self._out.write(b"\x50\x2a\x4d\x18" + struct.pack("<I", len(frame)) + frame)
        prefix = "io.github.containers.zstd-chunked.manifest-"
        return {prefix + "position": f"{offset}:{len(packed)}:{len(toc)}:1",
                prefix + "checksum": "sha256:" + hashlib.sha256(packed).hexdigest()}


def make_blob(tree, form, path):
    """Writes the blob to `path`."""
    if form not in FORMS:
        raise ValueError(f"no such form: {form}")
    annotations = {}
    with open(path, "wb") as file:
        if form in ("estargz", "zstd:chunked"):
            out = Hashing(file)
            tar, annotations = Indexed(tree, form, out).write()
        else:
            tar = write_stream(tree, form, file)
    with open(path, "rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    suffix = {"tar": "", "gzip": "+gzip", "estargz": "+gzip"}.get(form, "+zstd")
    return Blob(digest=f"sha256:{digest}", diff_id=tar.digest,
                compressed_bytes=os.path.getsize(path), tar_bytes=tar.size,
                media_type=TAR + suffix, annotations=annotations)
