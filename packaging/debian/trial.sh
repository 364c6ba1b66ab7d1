#!/bin/sh
# Installs, uses, upgrades and purges the package in a system of its own. `cargo xtask package --try` runs it, and so does CI.
set -eu
cd /trial

say() {
    echo "== $*"
}

# All files in folders that packages install into.
files() {
    find /etc /opt /srv /usr /var -xdev | sort
}

# Starts the broker as the unit does.
start() {
    runuser=$(sed -n 's/^User=//p' /usr/lib/systemd/system/pondhawk.service)
    command=$(sed -n 's/^ExecStart=//p' /usr/lib/systemd/system/pondhawk.service)
    install -d -o "$runuser" -g "$runuser" -m 750 /var/lib/pondhawk
    STATE_DIRECTORY=/var/lib/pondhawk setpriv --reuid="$runuser" --regid="$runuser" --init-groups $command 2>>log &
    broker=$!
    for _ in $(seq 100); do
        if pondhawk pub -t up -n 2>/dev/null; then return; fi
        sleep 0.1
    done
    cat log
    exit 1
}

stop() {
    kill "$broker"
    wait "$broker"
}

# As on every machine that was installed.
echo '127.0.0.1 localhost' >/etc/hosts

say install
files >before
dpkg --install first.deb
test "$(stat -c '%U:%G %a' /etc/pondhawk)" = 'root:pondhawk 2750'

say start, and leave a message for a lasting session
start
pondhawk sub -i frog -c -q 1 -t pond -E
pondhawk pub -q 1 -t pond -m croak
stop

say upgrade: the session is kept, and so is a configuration that was changed
echo '# changed' >>/etc/pondhawk/pondhawk.toml
dpkg --install second.deb
grep -q '# changed' /etc/pondhawk/pondhawk.toml
start
test "$(pondhawk sub -i frog -c -q 1 -t pond -C 1 -W 10)" = croak

say a user, whose file the broker can read
echo secret-of-ann | pondhawk user add ann --config /etc/pondhawk/pondhawk.toml
kill -HUP "$broker"
for _ in $(seq 100); do
    if pondhawk pub -t up -n -u ann -P secret-of-ann 2>/dev/null && ! pondhawk pub -t up -n -u ann -P wrong 2>/dev/null; then
        known=yes
        break
    fi
    sleep 0.1
done
test "${known-}" = yes
stop

say purge
dpkg --purge pondhawk
files >after
# Lists that dpkg and adduser renew, and the lock of adduser.
if diff before after | grep '^>' | grep -v -e '/var/lib/dpkg/' -e '/var/log/' -e '/var/cache/' -e '/etc/[a-z]*-$'; then
    echo 'these files have remained'
    exit 1
fi
if getent passwd pondhawk; then exit 1; fi
say everything is as before
