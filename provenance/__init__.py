"""Provenance: who has learned what, and who may still learn more.

One room, four counters, all in PostgreSQL (schema ``provenance``, made by ``migrations/``):

- the **registry** (``registry.py``) tells what is public: analysts, registered tables, units, bounds, key domains;
  ``domain.py`` turns a declaration into the SQL that lists a column's groups;
- the **ledger** (``ledger.py``, its statements in ``ledger_sql.py``, rows to values in ``entries.py``) is the till: a
  ``Charge`` goes in, and a ``Receipt`` comes out once it is committed; ``chain.py`` notices a ledger that was set back;
- the **synopses** (``synopses.py``) are what was answered before: the same question again is free;
- the **releases** (``releases.py``) are the hidden global synopses of views, and what each analyst knows of them;
  ``plan.py`` says which way to a number costs least now: Reuse, Derive, Refine or Measure; ``snapshots.py`` which
  releases may be combined.

A charge falls on regions: ``region.py`` and ``extent.py`` say which part of the domain it touches (``reach.py`` reads
it from a question, ``told.py`` puts it into words), ``overlap.py`` (with ``sweep``, ``clique``, ``colouring``,
``buckets``, ``boxing``, ``touching``, ``weighing``) bounds the largest total over any point, ``popularity.py`` counts
it, and ``bounds.py`` remembers the bounds for the till (see below). Where a limit is reached, ``nearby.py`` answers
from what the analyst knows (``shape.py`` says what each release is a picture of), by ``relax.py`` and ``combine.py``
over ``space.py`` and ``released.py``. All these are functions on values, measured by the benches ``overlap`` and
``relax``.

The route of a charge through this room::

    Charge -> Outlook.in_turns: what it will count for, by the books as they are now; nothing is locked
           -> Ledger.charge: BEGIN, lock the balances (the table's first, then the analyst's, then the views'),
              read deployment, analyst and relation afresh     -> StaleCatalog if the question was priced under
                                                                  other versions: plan it again
           -> accountant.admit (pure): all limits must hold    -> LimitReached (53400), nothing is spent; but first
                                                                  another turn, if a smaller bound may be found
           -> INSERT charge (its triggers move the balances and link the chain), what is learned with it, COMMIT
           -> Receipt                                          -> CommitUnknownError if the connection broke there

A question with stages pays as it goes, and a crash loses budget, never privacy::

    Charge(staged=True) -> Ledger.charge_all     a first reservation: what the first stage may spend
    Receipt, Loss       -> Ledger.reserve_more   the same locks and limits, before each further stage
                                                 -> LimitReached, and what is reserved already is told
    Receipt, reached    -> Ledger.settle         once, at the end: gives back what was reserved and not reached
                                                 -> NotSettledError: the reservation stays, the answer may be given

In the journal these are rows of one question (``charge.stage``, ``charge.question_of``); only a settlement has a
negative amount, and triggers keep the sum of a question from falling below what is right, whoever inserts. With a
settlement goes the loss of each group (``PredicateLoss``, table ``charge_loss``, function ``group_losses``).
``accountant.fold`` gives the same balances from the journal alone.

Who pays what: an analyst pays for what is new to the analyst (``Charge.loss``), the protected database and a view for
what is new to everybody (``Charge.table``, ``Part.table``). Whoever learns from a release that another has paid for
costs the database nothing; colluding analysts together know the releases, and no more.

What may be spent: limits are (epsilon, delta), the ledger adds up coin. The deployment's delta is split in public, in
one place (``deployment.conversion_delta`` and ``payment_delta`` in ``0001_tables.sql``): under ``zcdp`` half of it
turns rho into epsilon and half pays for key thresholds; under ``pure`` all of it pays. Nothing that was spent comes
back; where there are periods (``deployment.period``), each adds to every limit its coin and its delta once more.

A worked example of stages: alice reserves rho 0.001, then 0.002 more, stops at 0.0015 and settles. Her balance goes
0.001, 0.003, 0.0015; ``provenance.history`` shows one line with 0.0015. Had the proxy died before, it would show 0.003.

A worked example of limits: epsilon 10, delta 1e-9, ``zcdp``. Alice has privilege 1, so her limit is 10 * 1/10 = 1,
which at delta 5e-10 is worth rho 0.0144. A decision that is 0.05-DP costs rho 0.00125: eleven fit, and the twelfth is
refused, although 12 * 0.05 is below 1: for so few questions plain addition would be kinder. With privilege 10 her limit
is worth rho 1.0597, and 847 of them fit where plain addition allows 200.

What counts: a unit lies on one point of the data domain and loses only what falls there, so what a limit bounds is the
largest total over any point (parallel composition). ``Charge.felt`` tells the regions of a charge, and
``charge.counted`` by how much it raised that total: nothing, where other regions have lost more. Forty questions about
forty diseases count as one. A balance is the sum of layers (``provenance.layer``, regions in ``provenance.felt``), one
for each data version of each relation: where a unit lies elsewhere, or lay before, is not known, so layers add up. What
says nothing of regions falls everywhere. Bounds are computed before the till is locked, for a version of the layer; if
it is another one at the till, the charge counts in full, and the next one makes up for it. So no interleaving counts
too little, and a limit refuses only by the best bound that can be found. Views need no regions: all charges of one are
about the same rows. The members of a coalition add up, and so do deltas, over all regions.

What is protected is a unit with everything that it ever was: neighbours are histories of the database that differ in
all versions of one unit, whatever was inserted, updated or deleted between questions. A unit is a row from its INSERT
to its DELETE, or all rows, at all times, with one value of the unit's columns (which are immutable by declaration of
the unit, and so is the path of foreign keys that leads to it). *Guarantee*: no unit loses more, over all its versions,
than a balance says. *Proof*: fix a unit u and a layer, that is a relation at one data version. Each question is
answered on one snapshot; if u has no row there that satisfies its conditions, its answer has the same law without u.
Otherwise that row lies in the question's region in every column, and so in the separating ones (``reach.separating``).
In these u has one value at all times of the layer: by the declarations rows stay as they are, or the column is
immutable; and for a unit of many rows it is constant in it as well. So there is one point of the domain of the
separating columns that lies in the regions of all questions of the layer that u can change, and what u loses by them
(the laws compose adaptively: zCDP adds up, and so does epsilon) is at most the largest total over any point, which is
what the layer counts. Layers add up, because nothing is known of where u was under another data version: a refresh,
another declaration of how the table changes (``relation.changes``), and another one of what is immutable in a table
that changes each begin a new one, once something was charged. What is declared and not enforced (``set_changes(...,
enforce => true)``) is believed: an UPDATE in spite of it is invisible here, and u may then have lost more than is
counted.

Releases are put together only if they are of the same rows: ``snapshots.py``.

The sum of what the charges count is a running total (``balance``), so a charge costs the same however long the journal
is, and every charge counts, whoever inserted it. Charges are never changed or removed: a settlement is one row more.
"""
