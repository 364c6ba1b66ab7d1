#!/bin/sh
# Writes the configuration of the broker from the options of the add-on, starts the broker, and tells Home Assistant about it.
set -eu

data=${ADDON_DATA:-/data}
settings=${ADDON_CONFIG:-/config}
ssl=${ADDON_SSL:-/ssl}
options=$data/options.json
users=$data/users

option() {
    jq --raw-output "$1" "$options"
}

# Gives a user a password, which comes from standard input.
login() {
    pondhawk passwd "$users" "$1"
}

umask 077
# Home Assistant and other add-ons log in with this password. It stays the same.
own=$data/password-of-home-assistant
test -s "$own" || head -c 32 /dev/urandom | base64 | tr -d '/+=\n' >"$own"

# Users that are no longer in the options disappear.
: >"$users"
login homeassistant <"$own"
count=$(option '.logins | length')
number=0
while [ "$number" -lt "$count" ]; do
    option ".logins[$number].password" | login "$(option ".logins[$number].username")"
    number=$((number + 1))
done

cat >"$data/pondhawk.toml" <<END
data_dir = "$data/journal"
# Files of the user, in the folder of the add-on.
include = "$settings/*.toml"
watch_interval = "10 s"

[auth]
password_file = "$users"

[[listener]]
address = "0.0.0.0:1883"

[admin]
address = "127.0.0.1:9883"
END

certificate=$ssl/$(option .certfile)
key=$ssl/$(option .keyfile)
if [ -f "$certificate" ] && [ -f "$key" ]; then
    cat >>"$data/pondhawk.toml" <<END

[[listener]]
address = "0.0.0.0:8883"
tls_certificate = "$certificate"
tls_key = "$key"
END
fi
pondhawk check "$data/pondhawk.toml" >/dev/null

# Posts a document to the supervisor.
post() {
    curl --silent --show-error --fail --max-time 30 --header "Authorization: Bearer $SUPERVISOR_TOKEN" \
        --header 'Content-Type: application/json' --data @- "http://supervisor/$1" >/dev/null
}

# Waits until clients are served, for at most ten minutes: a long journal is read first.
announce() {
    for _ in $(seq 600); do
        if pondhawk ctl ready >/dev/null 2>&1; then break; fi
        sleep 1
    done
    service=$(jq --null-input --arg host "$(hostname)" --rawfile password "$own" \
        '{host: $host, port: 1883, ssl: false, username: "homeassistant", password: $password, protocol: "3.1.1"}')
    echo "$service" | post services/mqtt
    echo "$service" | jq '{service: "mqtt", config: .}' | post discovery
}

if [ -n "${SUPERVISOR_TOKEN-}" ]; then
    announce &
fi
exec pondhawk --config "$data/pondhawk.toml"
