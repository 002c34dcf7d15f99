"""Headers that only other clients send."""


class NotText(str):
    """A header's name that is not UTF-8."""

    def encode(self, *_: object) -> bytes:
        return b"\xff\xfe"
