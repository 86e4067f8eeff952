"""Reads and writes GGUF files (version 3, little-endian), for tests that change one.

Metadata values stay the bytes that they are; tensors are (ne, type, bytes) with the contiguous dimension
first. Nothing is checked: the files come from tests/golden.
"""

import pathlib
import struct

F32, F16, Q5_0, Q8_0, Q4_K, Q5_K, Q6_K, BF16, MXFP4 = 0, 1, 6, 8, 12, 13, 14, 30, 39
BLOCK = {F32: (1, 4), F16: (1, 2), Q5_0: (32, 22), Q8_0: (32, 34), Q4_K: (256, 144), Q5_K: (256, 176),
         Q6_K: (256, 210), BF16: (1, 2), MXFP4: (32, 17)}  # type: elements, bytes
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}  # value type: bytes
UINT32, FLOAT32, BOOL, STRING, ARRAY = 4, 6, 7, 8, 9


def tensor_bytes(ne, kind):
    count = 1
    for n in ne:
        count *= n
    elements, size = BLOCK[kind]
    return count // elements * size


def value_bytes(kind, value):
    """Of an array: (item type, items)."""
    if kind == STRING:
        return struct.pack('<Q', len(value.encode())) + value.encode()
    if kind == ARRAY:
        return struct.pack('<IQ', value[0], len(value[1])) + b''.join(value_bytes(value[0], v) for v in value[1])
    return struct.pack('<' + {UINT32: 'I', FLOAT32: 'f', BOOL: '?'}[kind], value)


class GgufFile:
    def __init__(self, path):
        self._data = pathlib.Path(path).read_bytes()
        self._at = 0
        magic, version, num_tensors, num_values = self._take('<4sIQQ')
        assert (magic, version) == (b'GGUF', 3), path
        self.values = {}  # key: (type, bytes)
        for _ in range(num_values):
            key = self._string()
            (kind,) = self._take('<I')
            begin = self._at
            self._skip(kind)
            self.values[key] = (kind, self._data[begin:self._at])
        infos = []
        for _ in range(num_tensors):
            name = self._string()
            (rank,) = self._take('<I')
            ne = self._take('<%dQ' % rank)
            kind, offset = self._take('<IQ')
            infos.append((name, ne, kind, offset))
        base = (self._at + 31) // 32 * 32
        self.tensors = {name: (ne, kind, self._data[base + offset:base + offset + tensor_bytes(ne, kind)])
                        for name, ne, kind, offset in infos}

    def _take(self, layout):
        items = struct.unpack_from(layout, self._data, self._at)
        self._at += struct.calcsize(layout)
        return items

    def _string(self):
        (length,) = self._take('<Q')
        self._at += length
        return self._data[self._at - length:self._at].decode()

    def _skip(self, kind):
        if kind == STRING:
            self._string()
        elif kind == ARRAY:
            item, count = self._take('<IQ')
            for _ in range(count):
                self._skip(item)
        else:
            self._at += SCALARS[kind]

    def get_int(self, key):
        kind, raw = self.values[key]
        assert kind in SCALARS and kind not in (6, 12), key
        return int.from_bytes(raw, 'little')

    def set_int(self, key, value):
        self.values[key] = (UINT32, struct.pack('<I', value))

    def key(self, suffix):
        """Of the architecture."""
        return '%s.%s' % (self.values['general.architecture'][1][8:].decode(), suffix)

    def set(self, suffix, kind, value):
        self.values[self.key(suffix)] = (kind, value_bytes(kind, value))

    def write(self, path):
        head = [struct.pack('<4sIQQ', b'GGUF', 3, len(self.tensors), len(self.values))]
        for key, (kind, raw) in self.values.items():
            head.append(struct.pack('<Q', len(key)) + key.encode() + struct.pack('<I', kind) + raw)
        body, offset = [], 0
        for name, (ne, kind, raw) in self.tensors.items():
            head.append(struct.pack('<Q', len(name)) + name.encode() + struct.pack('<I', len(ne)))
            head.append(struct.pack('<%dQIQ' % len(ne), *ne, kind, offset))
            body.append(raw + bytes(-len(raw) % 32))
            offset += len(body[-1])
        head = b''.join(head)
        pathlib.Path(path).write_bytes(head + bytes(-len(head) % 32) + b''.join(body))
