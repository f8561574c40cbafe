# SPDX-License-Identifier: BSD-3-Clause
#
# From a clone: spack repo add contrib/packaging/spack && spack dev-build btl-fabric@0.1.0
import os

from spack.package import *


class BtlFabric(AutotoolsPackage):
    """MPI over InfiniBand, RoCE and iWARP for Open MPI, and softhca, RDMA devices in userspace for tests."""

    manual_download = True
    license("BSD-3-Clause")

    version("0.1.0")

    variant("component", default=True, description="Build the component of Open MPI; without it, only softhca")

    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("rdma-core")
    with when("+component"):
        # Its internal headers are installed if it was configured with --with-devel-headers. What version 5.0 leaves out
        # comes from its source: spack stage openmpi, and OPENMPI_SOURCE in the environment.
        depends_on("openmpi@4.1,5.0")
        depends_on("pmix")
        depends_on("hwloc@2:")
        depends_on("libevent")
        depends_on("libsodium")
        depends_on("check", type="build")
        depends_on("cli11", type="build")
        depends_on("nlohmann-json", type="build")
        depends_on("tl-expected", type="build")

    conflicts("%gcc@:10", msg="C++20 is needed")

    def component_dir(self):
        return join_path(self.prefix.lib, "openmpi")

    def configure_args(self):
        if self.spec.satisfies("~component"):
            return ["--disable-component"]
        args = [
            f"--with-openmpi={self.spec['openmpi'].prefix}",
            f"--with-component-dir={self.component_dir()}",
        ]
        source = os.environ.get("OPENMPI_SOURCE")
        if source:
            args.append(f"--with-openmpi-source={source}")
        return args

    def setup_run_environment(self, env):
        if self.spec.satisfies("+component"):
            system = join_path(self.spec["openmpi"].prefix.lib, "openmpi")
            env.set("OMPI_MCA_mca_base_component_path", f"{self.component_dir()}:{system}")
