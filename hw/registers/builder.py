"""Lists of fields, and registers one behind the other, for the register description."""

from .model import Access, Register, RegisterField

__all__ = ["Builder", "constants", "flags", "value"]


def constants(*fields):
    """Constant fields from ``(name, width, value, doc[, enum])``, from bit 0 upwards."""
    packed, lsb = [], 0
    for name, width, value, doc, *names in fields:
        packed.append(
            RegisterField(
                name=name,
                lsb=lsb,
                width=width,
                access=Access.CONSTANT,
                reset=value,
                doc=doc,
                enum=names[0] if names else None,
            )
        )
        lsb += width
    return packed


def flags(access, **docs):
    """One-bit fields from bit 0 upwards; one whose doc is None leaves its bit without a field."""
    return [
        RegisterField(name=name, lsb=lsb, access=access, doc=doc)
        for lsb, (name, doc) in enumerate(docs.items())
        if doc is not None
    ]


def value(access, width=32, *, lsb=0, names=None):
    """The only field of a register that holds one number."""
    return [RegisterField(name="VALUE", lsb=lsb, width=width, access=access, enum=names)]


class Builder:
    """Places registers one behind the other."""

    def __init__(self):
        self.registers = []
        self.offset = 0

    def add(self, name, fields, doc, **options):
        self.registers.append(
            Register(name=name, offset=self.offset, fields=tuple(fields), doc=doc, **options)
        )
        self.offset += 4

    def add_pair(self, name, access, doc, *, width=64, lsb=0, **options):
        """A number of ``width`` bits, of which the lowest ``lsb`` are always zero."""
        low = value(access, min(width, 32) - lsb, lsb=lsb)
        high = value(access, width - 32) if width > 32 else ()
        self.add(f"{name}_LO", low, f"{doc}; bits 31 to 0", **options)
        self.add(f"{name}_HI", high, f"{doc}; bits 63 to 32", **options)

    def skip_to(self, offset):
        if self.offset > offset:
            raise AssertionError(f"registers reach {self.offset:#x}, beyond {offset:#x}")
        self.offset = offset
