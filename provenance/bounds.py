"""What a charge counts for: by how much it raises the largest total over any point, layer by layer.

A layer (``provenance.layer``) is what the charges on one data version of one relation weigh in the balance of an
analyst or of the protected database. Of each layer that was used lately an ``Overlap`` is kept in memory, with the
version of the books that it stands for. Before a charge it is brought up to date and asked for a ``Quote``: the bound
that the layer will have, if it is still at that version when the till is locked. If it is not, the charge counts in
full, which is always right, and the next quote makes up for it. Nothing here touches a database.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal

from provenance.accountant import EXACT
from provenance.model import Charge
from provenance.overlap import WORK_FROM_SCRATCH, WORK_OF_A_CHARGE, Overlap
from provenance.region import EVERYWHERE, Part, Region

MOST_REGIONS = 2000
"""Different regions of a layer; what falls on a further one is booked as falling everywhere."""
MOST_BYTES = 2000
"""The longest text of a region in the books."""
MANY = 100
"""From so many changes on an overlap is made anew rather than changed."""

_MOST_LAYERS = 400
_ALONE = 4
_NONE = Decimal(0)


@dataclass(frozen=True, slots=True)
class Layer:
    """Whose charges, on which data."""

    scope: str  # table or analyst
    name: str
    relation_id: int
    data_version: int


@dataclass(frozen=True, slots=True)
class Stand:
    """A layer as the books have it."""

    version: int = 0
    bound: Decimal = _NONE


@dataclass(frozen=True, slots=True)
class Quote:
    """What the bound of a layer becomes by one row of the journal, if the layer is at this version."""

    layer: Layer
    version: int
    amount: Decimal  # of the row; what is given back has a minus
    parts: tuple[Part, ...]  # the same by region, without the sign
    after: Decimal
    exact: bool  # no smaller bound would be one
    gained: tuple[Part, ...] = ()  # what parts of the region bear instead, where a settlement gives all of it back

    @property
    def everywhere(self) -> bool:
        """Whether every point gains or loses the same."""
        return all(not region.sides for region, _ in self.parts)

    def fits(self, stand: Stand, amount: Decimal) -> bool:
        """Whether the quote is about this row on these books."""
        return not amount or (stand.version, amount) == (self.version, self.amount)

    def booked(self, stand: Stand, amount: Decimal) -> Stand:
        """The layer with the row in it.

        *Guarantee*: if no point had lost more than the bound before, none has after: without a quote that fits, a
        charge counts in full, and what is given back on a region does not count.
        """
        if not amount:
            return stand
        most = EXACT.add(stand.bound, amount) if amount > 0 or self.everywhere else stand.bound
        return Stand(stand.version + 1, min(most, self.after) if self.fits(stand, amount) else most)


@dataclass(frozen=True, slots=True)
class Quoted:
    """The quotes of one row: for the layers of the analyst and of the protected database."""

    felt: tuple[tuple[Region, Decimal, Decimal], ...]  # as it is booked; nothing: everywhere, in full
    own: Quote
    table: Quote

    @property
    def regions(self) -> list[str]:
        """As the journal writes them."""
        return [region.text for region, _, _ in self.felt]


@dataclass(slots=True)
class Kept:
    """A layer in memory."""

    version: int = 0
    amounts: dict[str, Decimal] = field(default_factory=dict)
    overlap: Overlap = field(default_factory=Overlap)
    alone: int = 0  # charges in a row that found the books as they were remembered
    tight: bool = False  # no smaller bound is found by looking at everything again

    @classmethod
    def of(cls, version: int, amounts: Mapping[str, Decimal]) -> Kept:
        """Made anew."""
        parts = [(Region.parse(text), amount) for text, amount in amounts.items() if amount]
        return cls(version, dict(amounts), Overlap.of(parts), tight=True)

    def change(self, text: str, region: Region, amount: Decimal) -> None:
        """Another total for a region, under the text that the books have it by: one of two may not hide the other."""
        more = EXACT.subtract(amount, self.amounts.get(text, _NONE))
        self.tight = False
        if more > 0:
            self.overlap.add([(region, more)])
        elif more < 0:
            self.overlap.give_back([(region, more.copy_negate())], WORK_OF_A_CHARGE)
        self.amounts[text] = amount


class Bounds:
    """The layers in memory; those that were not used for long are dropped."""

    def __init__(self) -> None:
        self._kept: OrderedDict[Layer, Kept] = OrderedDict()

    def kept(self, layer: Layer) -> Kept:
        """A layer; one that is not in memory has no charges yet."""
        return self._kept.get(layer, Kept())

    def keep(self, layer: Layer, kept: Kept) -> None:
        """A layer that was made anew, if it is later than the one in memory, or has a smaller bound."""
        now = self.kept(layer)
        if kept.version == now.version:
            now.tight, kept.alone = True, now.alone
        if kept.version > now.version or (kept.version == now.version and kept.overlap.bound() < now.overlap.bound()):
            self._kept[layer] = kept
        self._use(layer)

    def learn(self, layer: Layer, since: int, version: int, changes: Iterable[tuple[str, Decimal]]) -> None:
        """Every region that has changed since a version, with its total now.

        *Guarantee*: a layer that was dropped since then is not made of its changes alone.
        """
        if self.kept(layer).version < since:
            return
        kept = self._use(layer)
        if version > kept.version:
            kept.alone = 0
            for text, amount in changes:
                kept.change(text, Region.parse(text), amount)
            kept.version = version

    def _use(self, layer: Layer) -> Kept:
        kept = self._kept.setdefault(layer, Kept())
        self._kept.move_to_end(layer)
        while len(self._kept) > _MOST_LAYERS:
            self._kept.popitem(last=False)
        return kept

    def forget(self, layers: Iterable[Layer] | None = None) -> None:
        """Layers whose books are not those that were seen; None: all."""
        for layer in list(self._kept if layers is None else layers):
            self._kept.pop(layer, None)

    def alone(self, layers: Iterable[Layer]) -> bool:
        """Whether nobody else seems to charge to these layers."""
        return all(self.kept(layer).alone >= _ALONE for layer in layers)

    def tight(self, layers: Iterable[Layer]) -> bool:
        """Whether looking at everything again would find no smaller bound of these layers."""
        return all(kept.tight or kept.overlap.exact for kept in map(self.kept, layers))

    def quotes(self, charges: Sequence[Charge], tight: bool = False) -> list[Quoted]:
        """What charges of one transaction count for, each after those before it; ``tight``: whatever work it takes."""
        work = WORK_FROM_SCRATCH if tight else WORK_OF_A_CHARGE
        told: list[Quoted] = []
        before: dict[Layer, list[Quote]] = {}
        for charge in charges:
            felt = self._felt(charge)
            full = felt or ((EVERYWHERE, charge.loss.amount, charge.table_amount),)
            own, table = layers_of(charge)
            quotes = (
                self._quote(before.setdefault(own, []), own, charge.loss.amount, _first(full), work),
                self._quote(before.setdefault(table, []), table, charge.table_amount, _second(full), work),
            )
            told.append(Quoted(felt, *quotes))
        return told

    def more(self, charge: Charge, amount: Decimal, table: Decimal, tight: bool = False) -> Quoted:
        """What a later stage of a question counts for: it reserves so much, or gives back what has a minus."""
        work = WORK_FROM_SCRATCH if tight else WORK_OF_A_CHARGE
        own, all_ = layers_of(charge)
        felt = self._felt(charge)
        region = felt[0][0] if felt else EVERYWHERE
        quotes = (
            self._quote([], layer, more, [(region, abs(more))], work) for layer, more in ((own, amount), (all_, table))
        )
        return Quoted(tuple((where, amount, table) for where, _, _ in felt), *quotes)

    def levelled(self, charge: Charge, paid: Decimal, back: Decimal, levels: Sequence[Part]) -> Quoted | None:
        """A settlement after which each of these disjoint parts of the question's region bears its own level.

        None where that is not booked, and the whole region bears what the question reached: nothing is given back, the
        books would have to call a part by a wider name, or the database loses less than the analyst learns.

        *Guarantee*: no more is counted than without the levels.
        """
        layers, felt = [self.kept(layer) for layer in layers_of(charge)], self._felt(charge)
        told = [(_bookable(region, layers), level) for region, level in levels]
        if len(felt) != 1 or charge.table_amount != charge.loss.amount or told != list(levels) or not back:
            return None
        region, gained = felt[0][0], tuple((part, level) for part, level in levels if level)
        quotes = []
        for layer in layers_of(charge):
            kept = self.kept(layer)
            known = kept.amounts.get(region.text, _NONE) >= paid
            after = kept.overlap.bound()
            if known:
                plain = kept.overlap.without([(region, back)])
                after = min(plain, kept.overlap.exchanged([(region, paid)], gained))
            version = kept.version if known else -1
            quotes.append(Quote(layer, version, back.copy_negate(), ((region, paid),), after, True, gained))
        moved = [(region, paid.copy_negate(), paid.copy_negate()), *((part, level, level) for part, level in gained)]
        return Quoted(tuple(moved), *quotes) if gained else None

    def committed(self, booked: Iterable[tuple[Quote, Stand, bool]]) -> None:
        """Rows are in the books, each with how its layer stood before it, and whether the quote was about that."""
        for quote, stand, fitted in booked:
            kept = self._use(quote.layer)
            if quote.version > stand.version:
                self.forget([quote.layer])  # books that are behind the memory are not those that were seen
            elif fitted and quote.amount and kept.version == stand.version:
                move = EXACT.add if quote.amount > 0 else EXACT.subtract
                for region, weight in quote.parts:
                    kept.change(region.text, region, move(kept.amounts.get(region.text, _NONE), weight))
                for region, weight in quote.gained:
                    kept.change(region.text, region, EXACT.add(kept.amounts.get(region.text, _NONE), weight))
                kept.version += 1
                kept.alone += 1
            elif not fitted:
                kept.alone = 0

    def _felt(self, charge: Charge) -> tuple[tuple[Region, Decimal, Decimal], ...]:
        layers = [self.kept(layer) for layer in layers_of(charge)]
        return tuple((_bookable(one.region, layers), one.amount, one.table) for one in charge.felt)

    def _quote(self, before: list[Quote], layer: Layer, amount: Decimal, parts: Iterable[Part], work: int) -> Quote:
        kept = self.kept(layer)
        own = tuple((region, weight) for region, weight in parts if weight)
        earlier = [part for quote in before for part in quote.parts]
        if amount < 0:
            known = all(kept.amounts.get(region.text, _NONE) >= weight for region, weight in own)
            after, exact = kept.overlap.without(own) if known else kept.overlap.bound(), True
        else:
            after, exact = kept.overlap.foreseen([*earlier, *own], work)
        version = kept.version + sum(1 for quote in before if quote.amount)
        # A stage on books that memory does not know is quoted for no version at all.
        made = Quote(layer, version if amount >= 0 or known else -1, amount, own, after, exact)
        before.append(made)
        return made


def blind(charge: Charge, regions: Sequence[str], amount: Decimal, table: Decimal) -> Quoted:
    """The quotes of a later stage on regions that nobody has looked for."""
    where = [Region.parse(text) for text in regions] or [EVERYWHERE]
    own, all_ = (
        Quote(layer, -1, more, tuple((region, abs(more)) for region in where), _NONE, False)
        for layer, more in zip(layers_of(charge), (amount, table), strict=True)
    )
    return Quoted(tuple((Region.parse(text), amount, table) for text in regions), own, all_)


def layers_of(charge: Charge) -> tuple[Layer, Layer]:
    """The layers that a charge falls into: the analyst's and the protected database's."""
    where = charge.relation_id, charge.data_version
    return Layer("analyst", charge.analyst, *where), Layer("table", "", *where)


def _bookable(region: Region, layers: Sequence[Kept]) -> Region:
    """The region as it is booked: wider where its text is too long, everywhere where there are too many."""
    if region.empty:
        return EVERYWHERE
    while len(region.text.encode()) > MOST_BYTES:
        longest = max(region.sides, key=lambda side: len(Region((side,)).text))
        region = Region(tuple(side for side in region.sides if side is not longest))
    full = any(len(each.amounts) >= MOST_REGIONS and region.text not in each.amounts for each in layers)
    return EVERYWHERE if full else region


def _first(felt: Iterable[tuple[Region, Decimal, Decimal]]) -> list[Part]:
    return [(region, amount) for region, amount, _ in felt]


def _second(felt: Iterable[tuple[Region, Decimal, Decimal]]) -> list[Part]:
    return [(region, table) for region, _, table in felt]
