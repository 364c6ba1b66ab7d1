#!/bin/sh
# Installs, upgrades and removes the package in the system in this folder: trial.sh SYSTEM FILE.rpm. `cargo xtask package --try`
# runs it, and so does CI. The system is one of Debian, and has the programs that scripts of the package run.
set -eu
system=$1
package=$2

say() {
    echo "== $*"
}

run() {
    rpm --root "$system" --dbpath /var/lib/rpm --nodeps "$@"
}

inside() {
    chroot "$system" "$@"
}

rpm --root "$system" --dbpath /var/lib/rpm --initdb

say install
run --install "$package"
test "$(inside stat -c '%U:%G %a' /etc/pondhawk)" = 'root:pondhawk 2750'
inside getent passwd pondhawk
inside setpriv --reuid=pondhawk --regid=pondhawk --init-groups pondhawk check /etc/pondhawk/pondhawk.toml >/dev/null
run --verify pondhawk

say upgrade: a configuration that was changed is kept
echo '# changed' >>"$system/etc/pondhawk/pondhawk.toml"
run --upgrade --force "$package"
grep -q '# changed' "$system/etc/pondhawk/pondhawk.toml"

say remove: a configuration that was changed, and the user, are kept
run --erase pondhawk
test ! -e "$system/usr/bin/pondhawk"
test ! -e "$system/usr/lib/systemd/system/pondhawk.service"
grep -q '# changed' "$system/etc/pondhawk/pondhawk.toml.rpmsave"
inside getent passwd pondhawk
say the program is gone, and what its administrator made is there
