# Boots systemd in namespaces of its own: $1 is where its root is mounted, $2 this repository, $3 a Python's prefix.
# Everything is over the machine's own root, in memory, and gone with the process.
set -eu
root=$1/root
mount -t tmpfs tmpfs "$1"
mkdir "$1/upper" "$1/work" "$root"
mount -t overlay overlay -o "lowerdir=/,upperdir=$1/upper,workdir=$1/work" "$root"
mount -t proc proc "$root/proc"
mount -t sysfs sysfs "$root/sys"
mount -t cgroup2 cgroup2 "$root/sys/fs/cgroup"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mount -t tmpfs tmpfs "$root/tmp"
mount -t tmpfs -o mode=755 tmpfs "$root/dev"
for device in null:1:3 zero:1:5 full:1:7 random:1:8 urandom:1:9 tty:5:0; do
  IFS=: read -r name major minor <<< "$device"
  mknod -m 666 "$root/dev/$name" c "$major" "$minor"
done
mkdir "$root/dev/pts" "$root/dev/shm" "$root/dev/mqueue"
mount -t devpts -o newinstance,ptmxmode=666 devpts "$root/dev/pts"
mount -t tmpfs tmpfs "$root/dev/shm"
ln -s pts/ptmx "$root/dev/ptmx"
ln -s /proc/self/fd "$root/dev/fd"
mkdir -p "$root/opt/src" "$root/opt/python" "$root/old"
mount --bind "$2" "$root/opt/src"
mount --bind "$3" "$root/opt/python"
# What the machine would start is not the test's.
find "$root/etc/systemd/system" -name "*.wants" -exec rm -rf {} +
rm -rf "$root/var/log/journal"
echo 0123456789abcdef0123456789abcdef > "$root/etc/machine-id"
cd "$root"
pivot_root . old
umount -l /old
# As on a host: systemd mounts a service's credentials in a namespace of its own, from where they come to all others.
mount --make-rshared /
exec env -i container=foliot PATH=/usr/sbin:/usr/bin:/sbin:/bin /lib/systemd/systemd --system --unit=multi-user.target
