"""Reads what a program needs from its ELF headers: its machine, its loader, its libraries.

Not by `ldd`, which runs the program and so can't look at one for another machine.
"""

import dataclasses
import os
import struct

MACHINES = {62: "amd64", 183: "arm64"}
PT_LOAD, PT_DYNAMIC, PT_INTERP = 1, 2, 3
DT_NEEDED, DT_STRTAB = 1, 5


class NotElf(Exception):
    """The file is no 64-bit little-endian ELF."""


@dataclasses.dataclass
class Elf:
    architecture: str
    interpreter: str
    needed: list


def read(path):
    with open(path, "rb") as f:
        data = f.read()
    if data[:6] != b"\x7fELF\x02\x01":
        raise NotElf(f"{path} is no 64-bit ELF program or library")
    machine, = struct.unpack_from("<H", data, 18)
    table, = struct.unpack_from("<Q", data, 32)
    size, count = struct.unpack_from("<HH", data, 54)
    segments = []
    for i in range(count):
        kind, _, offset, address, _, length = struct.unpack_from("<IIQQQQ", data, table + i * size)
        segments.append((kind, offset, address, length))
    interpreter = next((text(data, offset) for kind, offset, _, _ in segments
                        if kind == PT_INTERP), "")
    return Elf(MACHINES.get(machine, f"machine {machine}"), interpreter, needed(data, segments))


def text(data, offset):
    return data[offset:data.index(b"\0", offset)].decode()


def needed(data, segments):
    names, strings = [], 0
    for kind, offset, _, length in segments:
        if kind == PT_DYNAMIC:
            for tag, value in struct.iter_unpack("<QQ", data[offset:offset + length // 16 * 16]):
                if tag == DT_NEEDED:
                    names.append(value)
                elif tag == DT_STRTAB:
                    strings = value
                elif tag == 0:
                    break
    for kind, offset, address, length in segments:
        if kind == PT_LOAD and address <= strings < address + length:
            return [text(data, strings - address + offset + name) for name in names]
    return []


def closure(program, root, folders):
    """{soname: path below root} of all libraries that a program needs, itself and by others."""
    found, open_ends = {}, list(read(program).needed)
    open_ends.append(os.path.basename(read(program).interpreter))
    while open_ends:
        soname = open_ends.pop()
        if not soname or soname in found:
            continue
        path = next((os.path.join(folder, soname) for folder in folders
                     if os.path.exists(os.path.join(root, folder, soname))), None)
        if path is None:
            raise NotElf(f"{program} needs {soname}, which is not installed")
        found[soname] = path
        open_ends += read(os.path.join(root, path)).needed
    return found
