# shellcheck shell=bash disable=SC2154 # the variables are those of run
# SPDX-License-Identifier: BSD-3-Clause
#
# qemu_args: fills the array `qemu` with the command that boots the guest.
# Reads: vmlinux, scratch, cpus, mem, icount, verbose, shares, network, root.

qemu_args() {
	local i loglevel=5
	((verbose)) && loglevel=7
	# qboot is a BIOS that does no more than start a kernel.
	qemu=(qemu-system-x86_64 -no-user-config -nodefaults -display none -no-reboot
		-machine pc -bios qboot.rom -cpu max -m "$mem")

	# Never KVM: the point is to work everywhere, and where nested KVM is broken it hangs rather than fails.
	if ((icount)); then
		# Virtual time counts guest instructions (2 ns each), so that the host's load does not show.
		qemu+=(-accel 'tcg,thread=single' -icount 'shift=1,sleep=off' -smp 1)
	else
		qemu+=(-accel 'tcg,thread=multi' -smp "$cpus")
	fi

	# tsc: the kernel's other choice is the HPET, which costs an exit to QEMU for each look at the clock.
	# panic=-1 with -no-reboot: a panic ends QEMU at once.
	qemu+=(-kernel "$vmlinux" -initrd "$scratch/initramfs"
		-append "console=ttyS0 loglevel=$loglevel panic=-1 oops=panic tsc=reliable clocksource=tsc mitigations=off")
	qemu+=(-serial "file:$(comma "$scratch/console")")

	# One channel carries stdout, stderr and the exit status as frames (guest/channel), so that they keep their order.
	qemu+=(-chardev "pipe,id=channel,path=$(comma "$scratch/channel")"
		-device virtio-serial-pci -device 'virtserialport,chardev=channel,nr=1,name=channel')

	# Ethernet frames in datagrams. Where they come faster than the other guest takes them some are lost, as on a network.
	if [[ -n $network ]]; then
		local host ports
		IFS=, read -r host ports <<<"$network"
		IFS=, read -ra ports <<<"$ports"
		for i in 0 1; do
			qemu+=(-netdev "dgram,id=eth$i,$(loopback local "${ports[2 * i]}"),$(loopback remote "${ports[2 * i + 1]}")"
				-device "virtio-net-pci,netdev=eth$i,mac=52:54:00:00:0$i:0$host,host_mtu=4200")
		done
	fi

	# remap: a root with several file systems below it has equal inode numbers.
	export_9p root "${root:-/}" ',readonly=on'
	for i in "${!shares[@]}"; do
		export_9p "share$i" "${shares[i]}" ''
	done
}

loopback() { printf '%s' "$1.type=inet,$1.host=127.0.0.1,$1.port=$2"; }

export_9p() {
	qemu+=(-fsdev "local,id=$1,path=$(comma "$2"),security_model=none,multidevs=remap$3"
		-device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}

# QEMU's options take a comma in a value when it is doubled.
comma() { printf '%s' "${1//,/,,}"; }
