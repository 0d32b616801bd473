"""How a table is read: decided once from its first rows, and kept with a checkpoint."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from bayestream.streams.columns import Column
from bayestream.streams.dialects import Dialect
from bayestream.streams.encoder import Columns, Encoder
from bayestream.streams.habits import Habits
from bayestream.streams.targets import Target

_SHOWN = 40  # columns, one a line
_WORDS: dict[str, str] = {
    "numeric": "number",
    "categorical": "category",
    "date": "date",
    "left out": "left out",
}


class Plan(NamedTuple):
    """How a table is read, and why so."""

    dialects: dict[str, Dialect]  # by the files' names, as they are opened
    columns: tuple[Column, ...]
    target: Target
    looked_at: str  # so many rows, in words
    ignore: tuple[str, ...] = ()  # as the user says, be they in the first rows or not

    @property
    def files(self) -> list[str]:
        """How each is written, in a line."""
        return [f"{name}: {dialect.said()}" for name, dialect in self.dialects.items()]

    def lines(self) -> list[str]:
        """One for each column, and for how the file is written."""
        shown = [(c.name, _WORDS[c.kind], c.why) for c in self.columns[:_SHOWN]]
        rest = self.columns[_SHOWN:]
        shown += [(self.target.name, "target", self.target.why)]
        width = min(max(len(name) for name, *_ in shown), 24)
        lines = [f"  {name:<{width}}  {kind:<8}  {why}".rstrip() for name, kind, why in shown]
        if rest:
            each = {word: sum(_WORDS[c.kind] == word for c in rest) for word in _WORDS.values()}
            said = ", ".join(f"{number} {word}" for word, number in each.items() if number)
            lines.insert(-1, f"  and {len(rest)} more columns: {said}")
        return [*self.files, f"columns, as {self.looked_at} have them:", *lines]

    def encoder(self) -> Encoder:
        """An encoder that knows the columns' kinds, and nothing of their values."""
        of_kind = {
            kind: tuple(c.name for c in self.columns if c.kind == kind)
            for kind in ("numeric", "categorical", "date", "left out")
        }
        if len(of_kind["left out"]) == len(self.columns):
            reasons = "; ".join(f"{c.name} is {c.kind}: {c.why}" for c in self.columns[:3])
            raise ValueError(
                f"the table must have a column to forecast {self.target.name} from, and has none"
                f"{f' ({reasons})' if reasons else ''}."
            )
        both = (*self.columns, self.target)
        return Encoder(
            Columns(of_kind["numeric"], of_kind["categorical"], of_kind["date"]),
            target=self.target.name,
            task=self.target.task,
            ignore=[*of_kind["left out"], *self.ignore],
            slots={c.name: c.slots for c in self.columns if c.slots},
            classes=max(self.target.outputs, 2),
            orders={c.name: c.order for c in self.columns if c.order},
            habits={each.name: each.habits for each in both if any(each.habits)},
            most={each.name: each.most for each in both if each.most},
        )

    def to_json(self) -> dict[str, Any]:
        """All of it in plain JSON."""
        return {**self._asdict(), "dialects": [*self.dialects.items()]}  # in their order

    @classmethod
    def from_json(cls, saved: Mapping[str, Any]) -> Plan:
        """What `to_json` has said."""
        columns = (Column(*each) for each in saved["columns"])
        columns = tuple(each._replace(habits=Habits(*each.habits)) for each in columns)
        target = Target(*saved["target"])
        target = target._replace(habits=Habits(*target.habits))
        return cls(
            {name: Dialect.from_json(each) for name, each in saved["dialects"]},
            columns,
            target._replace(classes=tuple(target.classes)),
            saved["looked_at"],
            tuple(saved["ignore"]),
        )
