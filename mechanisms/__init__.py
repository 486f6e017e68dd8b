"""The room of numbers: how much noise, what it costs, and what may be concluded from it.

Nothing here knows SQL, the network or the clock. What comes in is integers on a public lattice (for a count, whole
numbers; one row per aggregate, one column per group of the public domain), and accuracies or prices as decimals.

A number, and a decision at a fixed price::

    Accuracy ──► apportion ──► Share ──► Loss              what would it cost? (nothing has been read)
    accuracy     number,       grid      loss              the ledger charges it
                 threshold     ▼
                 Exact ──► release ──► Noisy ──► decide    the only place of noise; all after it is free
                 values    release     values    threshold, interval

A decision in stages::

    Problem ──► cert, probe, ... ──► Refine | Fresh | Choose ──► Loss     what the next stage would cost
    decision    named: certify,      decision                    account  the ledger reserves it
                progressive, probe,                ▼
                shifted, mirror      Staged ──► Estimates ──► ... ──► Decision
                                     release    ladder, path          decision

Numbers that many analysts share (coin ``zcdp``)::

    releases, Known ──► step ──► Step          what a wished precision takes: nothing, a part of a release, a fresh one
    synopsis            synopsis               ``price`` says what is new to the analyst, and to the database
                        ▼
                        draw_partial ──► estimate   noise added for one analyst, and narrowed later (``bridge``)

``translate`` turns margins, squared errors and epsilons into precisions and back. ``course`` leads a staged decision as
far as what is paid reaches, ``solve`` without a till (tests, benches). ``noise`` has the two laws and their tails,
``sampler`` draws from them exactly, ``fixed`` is the integer arithmetic underneath.
``ladder`` has the public widths of noise that can be refined, ``path`` and ``jumps`` the noise itself, ``choosing`` a
private choice. Of ``cert``, ``field`` holds the released numbers, ``credit`` how surely a group qualifies, and
``verdicts`` what is certified. ``split`` divides beta as the papers do, ``entropy`` is their measure of a spend.
``condition`` is the tree that HAVING becomes, and ``errors`` the root of every refusal.

A question with one atom, ``HAVING count(*) >= 500``, at margin 50 and beta 0.05:

>>> from decimal import Decimal
>>> import numpy as np
>>> from mechanisms.loss import Coin
>>> from mechanisms.release import release
>>> from mechanisms.threshold import decide, tslm
>>> from mechanisms.values import Exact

>>> share = tslm(sensitivity=1, margin=50, beta=Decimal("0.05"))
>>> share.epsilon                               # the continuous formula says ln(10)/50 = 0.046
Decimal('0.045590600052281057')
>>> share.loss(Coin.ZCDP).amount                # what the ledger takes before anything is read
Decimal('0.001039251406563525')

>>> exact = Exact(np.array([[3, 2900, 4100]]))  # three groups, as PostgreSQL counted them
>>> exact
<Exact 1x3>
>>> noisy = release(exact, [share])
>>> decide(noisy.row(0), +1, 500, share).tolist()
[False, True, True]

The papers' symbols, and the names they have here:

==================  =====================================  =====================================================
symbol              name                                   meaning
==================  =====================================  =====================================================
epsilon             ``Share.epsilon``                      price of one release, pure differential privacy
rho                 ``Loss.amount`` under ``Coin.ZCDP``    the additive coin; an epsilon-DP step costs epsilon^2/2
delta               ``Loss.delta``                         what is paid beside the coin
Delta, Delta g      ``sensitivity``                        how far one privacy unit moves an aggregate, in one cell
b                   1 / ``DiscreteLaplace.rate``           scale of Laplace noise
sigma^2             ``DiscreteGaussian.sigma2``            variance parameter of Gaussian noise
c                   ``threshold``                          the constant of an atom, on the lattice
u                   ``margin``, ``Share.shift``            half-width of the uncertain region around c
beta                ``beta``                               bound on missing a group that qualifies
alpha               ``Accuracy.alpha``                     bound on the share of false groups
Lambda, Pi          an atom of ``condition``               one aggregate against one threshold
k                   ``Exact.shape[1]``                     groups of the public domain
==================  =====================================  =====================================================
"""
