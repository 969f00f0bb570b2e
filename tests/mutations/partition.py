"""Reversed comparisons in the partitioners, and the tests that must detect them."""

from mutations.runner import Mutation

CONSTANT = ("tests/partition/test_partition_constant.py",)
GEOMETRIC = ("tests/partition/test_partition_geometric.py",)
OPTIMAL = ("tests/partition/test_partition_optimal.py",)
ROUNDING = ("tests/partition/test_partition_rounding.py",)
SMOOTH = ("tests/partition/test_partition_smooth.py",)

INVERSE = "partition/time_inverse.py"

MUTATIONS = [
    Mutation(
        "partition/constant.py", "(shares >= max_shares)", "(shares <= max_shares)", CONSTANT
    ),
    Mutation("partition/constant.py", "speeds > 0, load", "speeds < 0, load", CONSTANT),
    Mutation("partition/geometric.py", "if missing >= 0", "if missing <= 0", GEOMETRIC),
    Mutation("partition/geometric.py", "<= MIN_BRACKET * low", ">= MIN_BRACKET * low", GEOMETRIC),
    Mutation("partition/geometric.py", "shares) > seconds)", "shares) < seconds)", GEOMETRIC),
    Mutation(
        "partition/time_inverse.py",
        "parts >= self.max_shares",
        "parts <= self.max_shares",
        GEOMETRIC,
    ),
    Mutation(INVERSE, "(middle) <= seconds", "(middle) >= seconds", GEOMETRIC),
    Mutation("models/curves/packed.py", "[0] <= seconds", "[0] >= seconds", GEOMETRIC),
    Mutation("models/curves/packed.py", "(further) <= x", "(further) >= x", GEOMETRIC),
    Mutation("partition/distribution.py", "if room < load", "if room > load", GEOMETRIC),
    Mutation("partition/rounding.py", "if missing > 0", "if missing < 0", ROUNDING),
    Mutation("partition/rounding.py", "devices[ends < cut]", "devices[ends > cut]", ROUNDING),
    Mutation("partition/rounding.py", "(offers < room)", "(offers > room)", ROUNDING),
    Mutation("partition/smooth.py", "sum() >= under", "sum() <= under", SMOOTH),
    Mutation("partition/smooth.py", ".max()) <= precision", ".max()) >= precision", SMOOTH),
    Mutation("partition/smooth.py", "(early & (x < high))", "(early & (x > high))", SMOOTH),
    Mutation("partition/smooth.py", "times > seconds * (1", "times < seconds * (1", SMOOTH),
    Mutation("partition/optimal.py", "[table <= seconds", "[table >= seconds", OPTIMAL),
    Mutation("partition/optimal.py", "if slack < 0", "if slack > 0", OPTIMAL),
    Mutation("partition/optimal.py", "len(sums[-1]) <= total", "len(sums[-1]) >= total", OPTIMAL),
    Mutation("partition/bit_sets.py", "second_runs) < len(", "second_runs) > len(", OPTIMAL),
]
