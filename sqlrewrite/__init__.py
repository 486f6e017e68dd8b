"""From the analyst's text to a typed question, and from released numbers back to rows.

This room knows SQL and nothing of networks, budgets or noise. A text comes in, a ``Question`` goes out; the
question alone decides what is charged and what the protected database is asked. Later the released numbers come
in, and a statement that the shadow can run goes out.

    text -> parse -> allow, validate -> Question -> generate -> SQL for the protected database
                     predicate (WHERE)      |  \\-> sensitivity -> what one unit can move
                     decompose (HAVING)     |  \\-> cells -> the public groups; normal -> fingerprint
                                            \\---> assemble (Noisy) -> SQL for the shadow

``relations`` tells which relations a text names, ``split`` where its statements end. Every refusal is a class of
``errors`` with its SQLSTATE. To accept more SQL: a line in ``allow.ALLOWED``, the meaning in ``validate`` or below
it, cases in ``tests/sqlrewrite/cases``.

A worked example:

>>> from sqlrewrite.catalog import Attribute, Catalog, Kind, Relation
>>> from sqlrewrite.generate import generate
>>> from sqlrewrite.validate import read
>>> patients = Relation(1, "public", "patients", Kind.PROTECTED, {
...     "age": Attribute("age", "integer", not_null=True),
...     "disease": Attribute("disease", "text", not_null=True, domain=("cold", "flu")),
... })
>>> question = read(
...     "SELECT disease FROM patients WHERE age >= 18 GROUP BY disease HAVING count(*) > 500.5",
...     Catalog(1, (patients,)), lambda schema, name: patients if name == "patients" else None, [])
>>> question.having
Leaf(atom=Atom(aggregate=0, direction=1, threshold=501))
>>> measured = generate(question, seed=7)
>>> print(measured.sql)  # doctest: +NORMALIZE_WHITESPACE
SELECT t."disease" AS k0, pg_catalog.count(*)::int8 AS a0 FROM "public"."patients" AS t
WHERE (t."age" >= $1::integer) GROUP BY t."disease"
>>> measured.parameters
('18',)
"""
