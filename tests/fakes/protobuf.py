#!/usr/bin/python3
"""Protobuf wire format by hand, so that the tests need no generated code.

A message is built from (field number, value) pairs and read back as a dict of field number to
list of raw values. Only what CRI and containerd use here: varints and length-delimited fields.
"""


def _varint(number):
    if number < 0:
        number += 1 << 64
    out = bytearray()
    while number > 0x7F:
        out.append(number & 0x7F | 0x80)
        number >>= 7
    out.append(number)
    return bytes(out)


def encode(*fields):
    """Bytes of a message. Values: int and bool (varint), str, bytes, dict (a map of strings).

    None and empty values are left out, as proto3 does.
    """
    out = bytearray()
    for number, value in fields:
        if isinstance(value, dict):
            for key, entry in sorted(value.items()):
                out += encode((number, encode((1, key), (2, entry))))
        elif isinstance(value, (int, bool)):
            if value:
                out += _varint(number << 3) + _varint(int(value))
        elif value:
            raw = value.encode() if isinstance(value, str) else bytes(value)
            out += _varint(number << 3 | 2) + _varint(len(raw)) + raw
    return bytes(out)


def decode(data):
    """{field number: [values]}; a value is an int or bytes. Raises ValueError on broken input."""
    fields = {}
    position = 0

    def varint():
        nonlocal position
        result = shift = 0
        while True:
            if position >= len(data) or shift > 63:
                raise ValueError("broken varint")
            byte = data[position]
            position += 1
            result |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return result

    while position < len(data):
        key = varint()
        number, wire_type = key >> 3, key & 7
        if wire_type == 0:
            value = varint()
        elif wire_type in (1, 5, 2):
            length = varint() if wire_type == 2 else 8 if wire_type == 1 else 4
            value = data[position:position + length]
            if len(value) != length:
                raise ValueError("field goes beyond the message")
            position += length
        else:
            raise ValueError(f"wire type {wire_type} is not supported")
        fields.setdefault(number, []).append(value)
    return fields


def text(fields, number):
    """The last string of a field, or "" where it is absent."""
    return fields[number][-1].decode() if number in fields else ""


def integer(fields, number):
    """The last varint of a field as a signed int64, or 0 where it is absent."""
    value = fields[number][-1] if number in fields else 0
    return value - (1 << 64) if value >= 1 << 63 else value


def message(fields, number):
    """The last embedded message of a field, decoded; an empty one where it is absent."""
    return decode(fields[number][-1]) if number in fields else {}


def messages(fields, number):
    """All embedded messages of a repeated field, decoded."""
    return [decode(raw) for raw in fields.get(number, [])]
