# shellcheck shell=bash disable=SC2154 # the variables are those of run
# qemu_args: fills the array `qemu` with the command that boots the guest.
# Reads: vmlinux, scratch, cpus, mem, icount, verbose, shares.

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

	# remap: a root with several file systems below it has equal inode numbers.
	export_9p root / ',readonly=on'
	for i in "${!shares[@]}"; do
		export_9p "share$i" "${shares[i]}" ''
	done
}

export_9p() {
	qemu+=(-fsdev "local,id=$1,path=$(comma "$2"),security_model=none,multidevs=remap$3"
		-device "virtio-9p-pci,fsdev=$1,mount_tag=$1")
}

# QEMU's options take a comma in a value when it is doubled.
comma() { printf '%s' "${1//,/,,}"; }
