# SPDX-License-Identifier: Apache-2.0
#
# A plain QEMU machine of the debian template with openssh-server in it: the same kernel, the same machine
# type and the same root file system as a sandbox, reached by ssh over user networking. What a user would
# build instead. Its image and initramfs are made once in STATE/bench.
import gzip
import os
import shutil
import socket
import subprocess
import tempfile
import time

INIT = '''#!/bin/sh
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mkdir -p /dev/pts /run/sshd
mount -t devpts devpts /dev/pts
mount -t tmpfs tmpfs /run
mkdir -p /run/sshd
ip link set lo up
ip link set eth0 up
ip addr add 10.0.2.15/24 dev eth0
ip route add default via 10.0.2.2
exec /usr/sbin/sshd -D -e -f /dev/null -o Subsystem="sftp /usr/lib/openssh/sftp-server" -o UsePAM=no -o PermitRootLogin=prohibit-password -o StrictModes=no
'''

EARLY = '''#!/bin/sh
mount -t proc proc /proc
mount -t devtmpfs dev /dev
for m in $(cat /modules/order); do insmod /modules/$m 2>/dev/null || insmod /modules/$m.ko; done
n=0
until [ -b /dev/vda ] || [ $n -gt 100 ]; do n=$((n + 1)); usleep 50000; done
mount -t ext4 /dev/vda /root
umount /proc
mount --move /dev /root/dev
exec switch_root /root /sbin/bench-init
'''


def run(*argv, **more):
    return subprocess.run(argv, check=True, capture_output=True, **more)


class SshGuest:
    def __init__(self, state, mib, kernel_arguments):
        self.kernel_arguments = kernel_arguments
        self.folder = f'{state}/bench'
        self.template = f'{state}/pool/templates/debian/disk.img'
        if not os.path.exists(self.template):
            raise RuntimeError("the template 'debian' is not there")
        os.makedirs(self.folder, exist_ok=True)
        self.process = None
        self.control = f'{self.folder}/ctl'
        self.make_key()
        self.make_image(mib)
        self.make_initrd(state)
        self.boot(state)

    def make_key(self):
        self.key = f'{self.folder}/key'
        if not os.path.exists(self.key):
            run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', self.key)

    def make_image(self, mib):
        """The template with openssh-server, its packages unpacked into it; on a copy of ours, so mounting is fine."""
        self.image = f'{self.folder}/disk.img'
        with open(self.template.replace('disk.img', 'manifest.json'), 'rb') as f:
            stamp = f.read()
        done = f'{self.folder}/made-from'
        if os.path.exists(done) and open(done, 'rb').read() == stamp:
            return
        shutil.copyfile(self.template, self.image)
        with open(self.image, 'r+b') as f:
            f.truncate(max(os.path.getsize(self.image), (2048 + 4 * mib) << 20))
        run('resize2fs', '-f', self.image)
        with tempfile.TemporaryDirectory() as tmp:
            run('chown', '_apt', tmp)
            run('apt-get', 'download', 'openssh-server', 'openssh-sftp-server', 'libwrap0', cwd=tmp)
            root = f'{tmp}/root'
            os.mkdir(root)
            run('mount', '-o', 'loop', self.image, root)
            try:
                for deb in os.listdir(tmp):
                    if deb.endswith('.deb'):
                        # Not dpkg-deb -x, which would put a folder in place of the link /lib.
                        files = run('dpkg-deb', '--fsys-tarfile', f'{tmp}/{deb}').stdout
                        run('tar', '-x', '-p', '--keep-directory-symlink', '-C', root, input=files)
                with open(f'{root}/sbin/bench-init', 'w') as f:
                    f.write(INIT)
                os.chmod(f'{root}/sbin/bench-init', 0o755)
                os.makedirs(f'{root}/root/.ssh', exist_ok=True)
                shutil.copy(f'{self.key}.pub', f'{root}/root/.ssh/authorized_keys')
                with open(f'{root}/etc/passwd', 'a') as f:
                    f.write('sshd:x:104:65534::/run/sshd:/usr/sbin/nologin\n')
                run('ssh-keygen', '-q', '-t', 'ed25519', '-N', '', '-f', f'{root}/etc/ssh/ssh_host_ed25519_key')
            finally:
                run('umount', root)
        with open(done, 'wb') as f:
            f.write(stamp)

    def make_initrd(self, state):
        """busybox and the modules of the sandboxes' own initramfs."""
        self.initrd = f'{self.folder}/initrd'
        with tempfile.TemporaryDirectory() as tmp:
            with open(f'{state}/guest/initrd', 'rb') as f:
                data = f.read()
            if data[:2] == b'\x1f\x8b':
                data = gzip.decompress(data)
            elif data[:4] == b'\x28\xb5\x2f\xfd':
                data = run('zstd', '-dc', input=data).stdout
            run('cpio', '-idm', '--no-absolute-filenames', input=data, cwd=tmp)
            os.unlink(f'{tmp}/init')
            for folder in ('bin', 'proc', 'dev', 'root'):
                os.makedirs(f'{tmp}/{folder}', exist_ok=True)
            shutil.copy(shutil.which('busybox'), f'{tmp}/bin/busybox')
            for applet in ('sh', 'mount', 'umount', 'insmod', 'cat', 'usleep', 'switch_root', 'test', '['):
                os.symlink('busybox', f'{tmp}/bin/{applet}')
            with open(f'{tmp}/init', 'w') as f:
                f.write(EARLY)
            os.chmod(f'{tmp}/init', 0o755)
            names = run('find', '.', cwd=tmp).stdout
            with open(self.initrd, 'wb') as f:
                f.write(run('cpio', '-o', '-H', 'newc', input=names, cwd=tmp).stdout)

    @staticmethod
    def vmm_arguments():
        """Processor and accelerator of a machine of SPACE that runs."""
        for pid in filter(str.isdigit, os.listdir('/proc')):
            try:
                with open(f'/proc/{pid}/cmdline', 'rb') as f:
                    argv = f.read().decode(errors='replace').split('\0')
            except OSError:
                continue
            if argv[0].endswith('qemu-system-x86_64') and '-accel' in argv and '-cpu' in argv:
                return argv[argv.index('-cpu') + 1], argv[argv.index('-accel') + 1]
        return 'max', 'tcg'

    def boot(self, state):
        with socket.socket() as s:
            s.bind(('127.0.0.1', 0))
            self.port = s.getsockname()[1]
        cpu, accel = self.vmm_arguments()
        self.console = open(f'{self.folder}/console', 'wb')
        self.process = subprocess.Popen(
            ['qemu-system-x86_64', '-nodefaults', '-no-user-config', '-display', 'none', '-no-reboot', '-machine',
             'microvm,acpi=on,rtc=on,pit=off,pic=off', '-accel', accel, '-cpu', cpu, '-smp', '1', '-m', '256', '-kernel',
             f'{state}/guest/kernel', '-initrd', self.initrd, '-append',
             f'{self.kernel_arguments} net.ifnames=0', '-serial', 'stdio', '-drive', f'if=none,id=d,file={self.image},format=raw,cache=writeback',
             '-device', 'virtio-blk-device,drive=d', '-netdev', f'user,id=n,hostfwd=tcp:127.0.0.1:{self.port}-:22', '-device',
             'virtio-net-device,netdev=n'], stdin=subprocess.DEVNULL, stdout=self.console, stderr=subprocess.STDOUT)
        deadline = time.monotonic() + 120
        while True:
            try:
                self.run('true', fresh=True)
                break
            except subprocess.CalledProcessError as e:
                if time.monotonic() > deadline or self.process.poll() is not None:
                    self.close()
                    raise RuntimeError(f'the guest with sshd does not come up: {e.stderr[-200:]!r}') from e
                time.sleep(0.5)
        self.options = ['-o', 'ControlMaster=auto', '-o', f'ControlPath={self.control}', '-o', 'ControlPersist=600']

    options = []

    def arguments(self, fresh):
        return ['-i', self.key, '-o', 'StrictHostKeyChecking=no', '-o', 'UserKnownHostsFile=/dev/null', '-o', 'LogLevel=ERROR',
                '-o', 'BatchMode=yes', '-o', 'ConnectTimeout=20', *([] if fresh else self.options)]

    def run(self, what, fresh=False):
        return run('ssh', *self.arguments(fresh), '-p', str(self.port), 'root@127.0.0.1', what, stdin=subprocess.DEVNULL)

    def copy_in(self, size):
        path = f'{self.folder}/file'
        if not os.path.exists(path) or os.path.getsize(path) != size:
            with open(path, 'wb') as f:
                for _ in range(size >> 20):
                    f.write(os.urandom(1 << 20))
        run('scp', *self.arguments(False), '-P', str(self.port), path, 'root@127.0.0.1:/root/file')

    def copy_out(self, size):
        run('scp', *self.arguments(False), '-P', str(self.port), 'root@127.0.0.1:/root/file', f'{self.folder}/back')
        assert os.path.getsize(f'{self.folder}/back') == size

    def close(self):
        subprocess.run(['ssh', '-O', 'exit', '-o', f'ControlPath={self.control}', 'x'], capture_output=True)
        if self.process:
            self.process.kill()
            self.process.wait()
            self.console.close()
