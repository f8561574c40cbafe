#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs test_rdmacm of rdma-core's pyverbs test-suite on softhca: below softhca-run, in the directory above its `tests`.

The suite looks for the device's network interface in /sys, and skips the tests because there is none. And it opens the device
before it forks the processes that talk to each other; a child of a member of the fabric cannot join it. So the parent is told
what it would have found out.
"""
import os
import sys
import unittest
from importlib.machinery import SourceFileLoader

suite = os.path.join(os.getcwd(), "tests")
sys.path.insert(0, suite)
from args_parser import parser  # noqa: E402

parser.parse_args()
# Not by sys.path: beside the tests are the sources of pyverbs, which are not to be imported.
SourceFileLoader("tests", os.path.join(suite, "__init__.py")).load_module()
import tests.base  # noqa: E402


def set_up(case):
    """In place of RDMACMBaseTest.setUp: the first device of the first node."""
    case.dev_name, case.ib_port, case.gid_index, case.pkey_index = "softhca0", 1, 0, 0
    case.ip_addr, case.mac_addr = "127.64.0.1", None
    case.dev_info = {"dev_name": case.dev_name, "ib_port": case.ib_port, "gid_index": case.gid_index}
    case.pre_environment = {}


tests.base.RDMACMBaseTest.setUp = set_up
tests.base.RDMACMBaseTest.is_eth_and_has_roce_hw_bug = lambda case: False

from tests.test_rdmacm import CMTestCase  # noqa: E402

for name in dir(CMTestCase):  # these ask the device, in the parent, whether it has multicast
    if name.startswith("test_") and "multicast" in name:
        setattr(CMTestCase, name, unittest.skip("softhca has no multicast")(getattr(CMTestCase, name)))

unittest.main(verbosity=2)
