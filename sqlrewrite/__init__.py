"""From the analyst's text to typed questions, and from released numbers back to the analyst's text.

This room knows SQL and nothing of networks, budgets or noise. The *structure* of a statement is found by a token
scanner, so everything around a question may be any SQL that PostgreSQL knows. The *meaning* of a question's fragments
is read by sqlglot into a ``Question``, which alone decides what is charged and what the protected database is asked.

    text -> lex -> blocks (which SELECTs), folding (which are questions) -> cut (fragments, and the text around them)
                                               |
  derived, source, predicate, aggregate, decompose <- read (parse, allow, account: nothing unread) -> Question
                                               |
         interval, minimise, normal, canonical |-> sensitivity: what one unit can move
                                               |-> generate (render, amount): one SELECT, one scan
                                               |-> domain, cells: the public groups
                                               `-> values, finish: the analyst's text over the released numbers

``having`` and ``guard`` are parts of ``decompose``; ``split``, ``kind``, ``probe``, ``today`` and ``wrapper`` look at
whole statements. Every refusal is a class of ``errors`` with its SQLSTATE.
To accept more SQL: a line in ``allow``, the meaning in ``expression``, ``predicate`` or ``aggregate``, its bounds in
``interval``, its SQL in ``render``, and cases in ``tests/sqlrewrite/cases``.

A worked example:

>>> from sqlrewrite.blocks import outline
>>> from sqlrewrite.catalog import Attribute, Catalog, Kind, Relation
>>> from sqlrewrite.cut import cut
>>> from sqlrewrite.finish import finish, released
>>> from sqlrewrite.folding import questions
>>> from sqlrewrite.generate import generate
>>> from sqlrewrite.read import read
>>> patients = Relation(1, "public", "patients", Kind.PROTECTED, {
...     "age": Attribute("age", "integer", not_null=True),
...     "disease": Attribute("disease", "text", not_null=True, domain=("cold", "flu")),
... })
>>> text = "SELECT upper(disease) AS d, count(*) * 2 AS n FROM patients WHERE age >= 18 GROUP BY disease ORDER BY 2"
>>> (block,) = questions(outline(text), lambda name: name == (None, "patients"))
>>> taken = cut(text, block, {"patients": frozenset(patients.attributes)})
>>> [fragment.text for fragment in (*taken.clauses.keys, *taken.clauses.aggregates)]
['disease', 'count(*)']
>>> question = read(taken.clauses, Catalog(1, (patients,)), lambda schema, name: patients, [])
>>> generate(question, seed=7).parameters
('18',)
>>> print(finish(text, [released(question, taken, {0: 0})], 0))  # doctest: +NORMALIZE_WHITESPACE
SELECT upper(__veil_0.k0) AS "d", __veil_0.a0 * 2 AS "n"
FROM ROWS FROM (pg_catalog.unnest($1::text[]), pg_catalog.unnest($2::bigint[])) AS __veil_0(k0, a0) ORDER BY 2
"""
