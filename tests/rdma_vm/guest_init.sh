#!/bin/busybox sh
# First process of the test machine: shows it the host's file system, has the network set up, runs
# the command, tells its exit code and switches the machine off. Everything of busybox is called
# by that name, because the host's programs are not there before the chroot.
b=/bin/busybox
options=trans=virtio,version=9p2000.L,msize=524288

end() {
  $b echo "$1" >/dev/vport0p2
  $b poweroff -f
}

fail() {
  $b echo "test machine: $*" >/dev/console
  end 125
}

$b mount -t proc proc /proc
$b mount -t sysfs sysfs /sys
$b mount -t devtmpfs devtmpfs /dev
$b ln -s /proc/self/fd /dev/fd
while read -r module; do
  $b insmod "/modules/$module" || fail "cannot load $module"
done </modules/order
# The ports' device files appear once the driver has talked to qemu.
tries=0
until [ -e /dev/vport0p2 ] || [ $tries -ge 100 ]; do
  tries=$((tries + 1))
  $b usleep 50000
done

# The host's files, read only, with places of our own to write to.
$b mount -t 9p -o $options,cache=loose,ro host /host || fail "cannot mount the host's files"
for place in proc sys dev; do
  $b mount -o bind /$place /host/$place
done
for place in tmp run var/tmp; do
  $b mount -t tmpfs -o mode=1777 tmpfs /host/$place
done
$b mkdir -p /host/dev/shm /host/dev/pts /host/run/machine
$b mount -t tmpfs -o mode=1777 tmpfs /host/dev/shm
$b mount -t devpts devpts /host/dev/pts
$b mount -t 9p -o $options machine /host/run/machine || fail "cannot mount the machine's directory"
index=0
while read -r path; do
  $b mkdir -p "/host$path"
  $b mount -t 9p -o $options "share$index" "/host$path" || fail "cannot share $path"
  index=$((index + 1))
done </host/run/machine/shares

export PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
$b chroot /host /bin/bash /run/machine/network.sh >/dev/console 2>&1 ||
  fail "cannot set up the network"
$b chroot /host /usr/bin/setsid /bin/bash /run/machine/command.sh </dev/null >/dev/vport0p1 2>&1
end $?
