"""The seeded defects of this folder still fit the program, also those that only a campaign plants."""

from tests.faults import mutants
from tests.faults.mailbox import test_bad_requests, test_full_disk, test_kills, test_power, test_sweep_mailbox


def test_every_mutant_still_fits() -> None:
    for check in (test_bad_requests, test_full_disk, test_kills, test_power, test_sweep_mailbox):
        for mutant in check.MUTANTS:
            mutants.defective(mutant)
