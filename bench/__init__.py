"""Side-by-side measurements: ``python -m bench [NAME ...]``, or ``make bench ONLY=NAME``.

Every module that stands directly in this package is one bench; its name is the module's, its first line says what it
measures, and its ``run`` gives a ``Report``. What they share is in ``bench.rig``: real servers in real processes
(``scene``), rounds in which the rivals take turns (``measure``), and one way of telling (``report``).

Machines differ and are noisy, so what counts is a ratio: A and B are measured in turn, A B C, B C A, ..., each round
gives one quotient, and the median of the quotients is told with its smallest and largest.

    $ make bench ONLY=wire          # about five minutes
    $ python -m bench wire --smoke  # a few seconds: does it run at all?

Tables go to standard output, progress to standard error, and numbers and pictures to ``bench/results``.
"""
