"""The inside of one frame: a walk over its bytes that never leaves them."""

from __future__ import annotations

import struct

from proxy.errors import ProtocolViolation, UndecodableText

_u16 = struct.Struct(">H")
_u32 = struct.Struct(">I")
_i32 = struct.Struct(">i")


class Body:
    """A cursor behind the five bytes of type and length; whatever does not fit is a ``ProtocolViolation``."""

    __slots__ = ("at", "end", "frame", "name")

    def __init__(self, frame: bytes, name: str) -> None:
        self.frame = frame
        self.at = 5
        self.end = len(frame)
        self.name = name

    def bad(self, why: str) -> ProtocolViolation:
        """What to raise about this message."""
        return ProtocolViolation(f"invalid {self.name} message", detail=why)

    def take(self, size: int) -> int:
        """Step over so many bytes; where they began."""
        at = self.at
        if size < 0 or size > self.end - at:
            raise self.bad("The message ends too early.")
        self.at = at + size
        return at

    def raw(self, size: int) -> bytes:
        """So many bytes as they are."""
        at = self.take(size)
        return self.frame[at : at + size]

    def byte(self) -> int:
        return self.frame[self.take(1)]

    def u16(self) -> int:
        """A count: PostgreSQL reads counts unsigned, up to 65,535."""
        value: int = _u16.unpack_from(self.frame, self.take(2))[0]
        return value

    def i32(self) -> int:
        value: int = _i32.unpack_from(self.frame, self.take(4))[0]
        return value

    def u32(self) -> int:
        value: int = _u32.unpack_from(self.frame, self.take(4))[0]
        return value

    def many(self, code: str) -> tuple[int, ...]:
        """A count and then so many numbers of one ``struct`` code."""
        pattern = f">{self.u16()}{code}"
        return struct.unpack_from(pattern, self.frame, self.take(struct.calcsize(pattern)))

    def string(self) -> bytes:
        """Bytes up to a NUL."""
        stop = self.frame.find(b"\0", self.at)
        if stop < 0:
            raise self.bad("A string has no end.")
        at, self.at = self.at, stop + 1
        return self.frame[at:stop]

    def label(self) -> str:
        """A string that is only compared and passed on: any bytes survive the way to text and back."""
        return self.string().decode("utf-8", "surrogateescape")

    def text(self, encoding: str = "utf-8") -> str:
        """A string that must be valid in its encoding."""
        try:
            return self.string().decode(encoding)
        except UnicodeDecodeError:
            raise UndecodableText(f"the text of a {self.name} message is not valid {encoding.upper()}") from None

    def value(self) -> bytes | None:
        """A length and so many bytes; -1 is NULL."""
        size = self.i32()
        return None if size == -1 else self.raw(size)

    def values(self) -> list[bytes | None]:
        """A count and then so many values."""
        return [self.value() for _ in range(self.u16())]

    def rest(self) -> bytes:
        """All that is left."""
        return self.frame[self.at :]

    def finish(self) -> None:
        """Nothing may be left."""
        if self.at != self.end:
            raise self.bad("The message goes on after its end.")
