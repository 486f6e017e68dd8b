"""The front of the house: what speaks with clients, and the route that one question takes.

A client sees a PostgreSQL. Behind the port are three: the **shadow**, an empty copy where the analyst's own text runs;
the **protected** database, which only ever sees SQL that pgveil generated, for a receipt; and **provenance**, where
limits and charges are kept. This room moves bytes and messages and decides who answers; what a statement means is
``sqlrewrite``'s business, what noise costs is ``mechanisms``'s, and what has been spent is ``provenance``'s.

The route of one question, in the order of the files::

    server          a socket; the client's first packets, TLS, SCRAM     codec, tls, auth, binding; to the shadow: login
    session         whole messages, in order (``protocol`` says which may come)  codec, messages, body
    express         a statement that was answered before, or differs in its constants only: if its answer is known, it
                    is told at once, after one look at how things stand, and the shadow hears nothing of it
                    (``batches`` that ask for one; ``names`` of statements, which the shadow hears of later)
    route           may it name a protected relation? no: to the shadow, byte for byte (``link``), and that is all
    asking          yes: it waits for its turn; a portal is held until it is executed
    dated           the current day is written into its conditions: it is one question all day
    conversation    the shadow parses and describes it, resolves its names, tells the session's ``veil.`` settings
                    (``asides``); COPY, DECLARE and EXECUTE are taken off and put on again (``wrapped``)
    rehearsal       what would keep its answer in a table is tried over nothing before it is paid for
    trial           the statement around what is asked is run over numbers that are ``made_up``, and ``undone``
    wishes          those settings, checked
    plan            the questions in it, read and priced, without data; once for each text (``remembered``)
    decided         a HAVING in numbers, with the mechanism that will decide it
    floor           the least price of a question that reads data, and the accuracy that it buys
    wider           registered views whose cells add up to what is asked
    warm            a new question whose answer is known already: told at once, from memory (``mould``)
    answer          THE LINE: plan -> charge -> measure -> release -> decide -> finish; ``bill`` tells what it cost
    charging        what the ledger is asked for
    turns           whoever asks the same at the same time waits for the first, on whatever proxy
    numbers         what comes from synopses: reuse, derive, refine or measure (``view_updates``: what is done to each
                    view); ``free``: what costs nothing
    reuse           a decision on noise that was shown before, if the analyst says so
    relaxed         where a limit refuses a number, and the analyst wishes it: that of a nearby region that is known;
                    ``patched``: with pieces of it that may still be bought
    alone           numbers that are in no synopsis are filed, so that others can be put together from them
    levels          where what each group of a decision has lost falls
    staging         a decision in stages: each reserves before it looks, and at the end what was reached is settled
    rows            released numbers as the rows of an answer
    explain         EXPLAIN instead: the plan itself, for nothing (``priced``: what a question would cost now)
    backend         one snapshot of the data, opened, prepared and checked before the charge, read for a receipt
    scan            its rows become noisy numbers, in small pieces that hold nobody up
    pacing          what follows it happens after a secret delay, at a point of a public grid
    conversation    the released numbers go to the shadow as arrays behind the analyst's own portal
    link            PostgreSQL finishes, and its frames go to the client as they are

Around it: ``runtime`` (pools, and the registry as it stands now), ``standing`` (that and what is left, in one look;
``lookout``: the connection for looks),
``kept`` and ``recent`` (what was answered before, in memory), ``asker`` and ``reading`` (who asks, and what is known of
the text), ``plain`` (parameters that need no PostgreSQL to be read), ``reports`` (``veil.budget`` and
``veil.question``), ``help`` (``veil.help()``), ``passwords`` (one's own),
``expected`` (what PostgreSQL still owes a session), ``shadow`` with ``survey``, ``blueprint`` and
``powerless`` (how the copy is made, and the role that can do nothing), ``embedded`` and ``postmaster`` (the PostgreSQL
that pgveil starts by itself), ``errors`` (every refusal of this room, and the one place where a refusal becomes bytes),
``encodings`` (clients that do not speak UTF-8), ``veil_settings`` (their names and defaults), ``settings``, ``status``,
``demo``, ``demo_data``, and ``__main__``, the command line.

A worked example, after ``make demo``::

    $ PGPASSWORD=carol psql -h 127.0.0.1 -p 6543 -U carol demo
    demo=> SELECT disease FROM patient_data GROUP BY disease HAVING count(*) > 2500;
    NOTICE:  veil: cert spent epsilon 0.06 per row of patient_data; epsilon 9.94 left
    DETAIL:  {"question": "SELECT disease ...", "mechanism": "cert", "epsilon": 0.06, "charged": "0.00006",
              "beta": 0.05, "alpha": 0.1, "groups": 40, "returned": 9, "expected_false": 1.4, ...}
        disease
    ---------------
     asthma
     back pain
     ...
    (9 rows)

    demo=> SELECT * FROM patient_data;
    ERROR:  SELECT * would show private rows
    HINT:  ask for counts: SELECT key, count(*) FROM table GROUP BY key

What happened: ``route`` found a protected name; the shadow parsed the statement (so a typing mistake is an error of
PostgreSQL's own, and free); ``answer`` reserved what the first stages may cost, and only then counted; each of the 40
public diseases got its noise, which was refined until the decision could be certified, and what was reserved beyond
that came back. A group that truly qualifies was dropped with probability 0.05 at most, and at most a tenth of the
others is expected in the answer. The same question again is answered from what was stored, and costs nothing.

Where to look first: ``answer.py``, which is the whole product in one page; then ``session.py`` and ``link.py`` for how
messages flow; then ``tests/system/test_first_question.py``, which is this example as a test.
"""
