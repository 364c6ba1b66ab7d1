//! The table.
//!
//! In arguments, `$T` is a root of topics and `$I` a client identifier that no other row has; the other names are those of
//! `Mosquitto::names`. Behind `-h` and `-p` of the broker, which each program gets first, the last word counts.

/// A comparison.
#[derive(Clone, Copy)]
pub(crate) struct Row {
    pub(crate) tool: &'static str,
    pub(crate) arguments: &'static str,
    pub(crate) server: Server,
    /// Mosquitto's programs with their arguments, which run first.
    pub(crate) before: &'static [&'static str],
    /// Standard input.
    pub(crate) input: &'static str,
    /// The file of defaults.
    pub(crate) defaults: &'static str,
    /// So many messages are published below `$T`, and compared too.
    pub(crate) heard: usize,
    pub(crate) error: Standard,
    pub(crate) normal: Normal,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Server {
    Pondhawk,
    /// For what Pondhawk does not serve.
    Mosquitto,
    /// The row says itself where to connect, or does not come as far.
    Nobody,
}

/// How standard error is compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standard {
    /// Its first line is the same.
    Same,
    /// Ours says more, for this reason; both say something, or neither does.
    Ours(&'static str),
}

/// What of the output depends on the time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Normal {
    Nothing,
    /// The time in JSON.
    Json,
    /// Every digit.
    Digits,
}

impl Normal {
    pub(crate) fn of(self, output: &str) -> String {
        // mosquitto_pub prints its help where it is not told enough. Ours says where help is to be found.
        if output.starts_with("mosquitto_pub is a") {
            return String::new();
        }
        match self {
            Self::Nothing => output.to_owned(),
            Self::Digits => output.replace(|character: char| character.is_ascii_digit(), "9"),
            Self::Json => {
                let mut rest = output;
                let mut normal = String::new();
                while let Some((before, behind)) = rest.split_once("\"tst\":") {
                    normal.push_str(before);
                    rest =
                        behind.trim_start().get(2 + "2026-11-22T10:37:31.316078Z+0000".len()..).unwrap_or("");
                }
                normal + rest
            }
        }
    }
}

const ROW: Row = Row {
    tool: "",
    arguments: "",
    server: Server::Pondhawk,
    before: &[],
    input: "",
    defaults: "",
    heard: 0,
    error: Standard::Same,
    normal: Normal::Nothing,
};

/// Publishes; `heard` messages arrive.
const fn publish(heard: usize, arguments: &'static str) -> Row {
    Row { tool: "pub", arguments, heard, ..ROW }
}

/// Publishes what comes from standard input.
const fn publish_input(heard: usize, arguments: &'static str, input: &'static str) -> Row {
    Row { tool: "pub", arguments, heard, input, ..ROW }
}

/// Subscribes, when these programs have run.
const fn subscribe(before: &'static [&'static str], arguments: &'static str) -> Row {
    Row { tool: "sub", arguments, before, ..ROW }
}

/// Asks.
const fn request(arguments: &'static str) -> Row {
    Row { tool: "rr", arguments, ..ROW }
}

/// Says no to the arguments.
const fn refused(tool: &'static str, arguments: &'static str) -> Row {
    Row { tool, arguments, server: Server::Nobody, ..ROW }
}

/// Speaks to Mosquitto.
const fn with_mosquitto(row: Row) -> Row {
    Row { server: Server::Mosquitto, ..row }
}

/// Says more on standard error than Mosquitto's program does, for this reason.
const fn better(why: &'static str, row: Row) -> Row {
    Row { error: Standard::Ours(why), ..row }
}

const fn in_json(row: Row) -> Row {
    Row { normal: Normal::Json, ..row }
}

const fn without_digits(row: Row) -> Row {
    Row { normal: Normal::Digits, ..row }
}

/// Flags of Mosquitto's programs that are refused by name.
pub(crate) const REFUSED: &[&str] = &["--psk", "--psk-identity", "--tls-engine", "--tls-engine-kpass-sha1"];

/// Values of other flags that are refused by name.
pub(crate) const REFUSED_VALUES: &[(&str, &str)] = &[("--keyform", "engine"), ("--tls-version", "tlsv1.1")];

/// Flags whose output is our own text, and whose exit code is 0: whoever asks for help and gets it has not failed.
pub(crate) const OWN_TEXT: &[&str] = &["--help", "--version"];

const VALUE: &str = "the value is named as it was typed, and not as the number that C makes of it";
const UNNAMED: &str = "what is missing is said, and not that the library was called as it must not be";
const ONE_LINE: &str = "Mosquitto's program says it twice, the second time as if the network were at fault";
const WHERE: &str = "the layer that failed is named, and why";

/// A message that the broker keeps.
const KEPT: &[&str] = &["pub -t $T/a -m abcdef -r"];

/// A message that is JSON.
const JSON: &[&str] = &[
    r#"pub -t $T/a -r -m '{"b": 1.50, "a":[1,2,{"c":null}], "s":"é\u00e9\n\/", "e":{}, "f":[], "x":1e30, "a":-0}'"#,
];

/// One with every property.
const PROPERTIES: &[&str] = &["pub -t $T/a -m abc -r -V 5 -D publish payload-format-indicator 1 \
    -D publish message-expiry-interval 86400 -D publish content-type text/plain -D publish response-topic re/ply \
    -D publish correlation-data 4711 -D publish user-property a b -D publish user-property c 'd e'"];

/// A session that waits, and what has come meanwhile.
const WAITING: &[&str] = &[
    "sub -t $T/# -q 2 -c -i $I -E",
    "pub -t $T/a -q 1 -m one",
    "pub -t $T/c -q 0 -m three",
    "pub -t $T/d -q 1 -n",
    "pub -t $T/e -q 1 -m 4711",
    // The last: it is printed when it is received, and by Mosquitto's program when it is released.
    "pub -t $T/b -q 2 -m two",
];

pub(crate) const ROWS: &[Row] = &[
    // What is published.
    publish(1, "-t $T/a -m hello"),
    publish(1, "--topic $T/a --message hello --qos 1"),
    publish(1, "-t $T/a -m 'two words' -q 2 -d -i $I"),
    publish(1, "-t $T/a -m hello -q 1 --debug --id $I"),
    publish(1, "-t $T/a -m hello -d -i $I -V 5"),
    publish(1, "-t $T/a -m hello -V mqttv31 -i $I"),
    publish(1, "-t $T/a -m hello -V 31"),
    publish(1, "-t $T/a -m hello --protocol-version mqttv5 --retain"),
    publish(1, "-t $T/a -n -r"),
    publish(1, "-t $T/a --null-message"),
    publish(1, "-t $T/a -m ''"),
    publish(1, "-t $T/a -f $FILE"),
    publish(1, "-t $T/a --file $FILE -I prefix"),
    publish(1, "-t $T/a --id-prefix prefix -m x"),
    publish_input(1, "-t $T/a -s", "one\ntwo\n"),
    publish_input(1, "-t $T/a --stdin-file", "one"),
    publish_input(4, "-t $T/a -l", "one\ntwo\n\nfour"),
    publish_input(3, "-t $T/a --stdin-line -q 1", "one\ntwo\nthree\n"),
    publish_input(3, "-t $T/a -l -q 2 -M 1", "one\ntwo\nthree\n"),
    publish(0, "-t $T/a -l -d -i $I"),
    publish(3, "-t $T/a -m x --repeat 3 -d -i $I"),
    publish(2, "-t $T/a -m x --repeat 2 --repeat-delay 0.05 -q 1 -d -i $I"),
    publish(2, "-t $T/a -m x --repeat 2 -q 2 -d -i $I"),
    publish(3, "-t $T/a -m x --repeat 3 -V 5 -d -i $I"),
    publish_input(3, "-t $T/a -l -V 5 -d -i $I", "one\ntwo\nthree"),
    publish(1, "-t $T/b -t $T/a -m x"),
    publish(1, "-t $T/a -m x -k 5 --nodelay --quiet"),
    publish(1, "-t $T/a -m x --keepalive 60 -c -i $I"),
    publish(1, "-t $T/a -m x --disable-clean-session -i $I -V 5"),
    publish(1, "-t $T/a -m x -x 60 -V 5 -i $I"),
    publish(1, "-t $T/a -m x -x -1"),
    publish(1, "-t $T/a -m x -x 60 -c -V 5 -I prefix"),
    publish(1, "-t $T/a -m x -x 0 -D connect session-expiry-interval 5"),
    publish(1, "-t $T/a -m x -A 127.0.0.1"),
    publish(1, "-t $T/a -m x -u ann -P secret"),
    publish(1, "-t $T/a -m x --username ann --pw secret"),
    publish(1, "-L mqtt://127.0.0.1:$PORT/$T/a -m x"),
    publish(1, "-t $T/b --url mqtt://ann:secret@127.0.0.1:$PORT/$T/a -m x"),
    publish(1, "-t $T/a -m x --host localhost --port $PORT"),
    publish(1, "-t $T/a -m x --will-topic $T/will --will-payload gone --will-qos 1 --will-retain"),
    publish(1, "-t $T/a -m x --will-topic $T/will -D will content-type a -D will will-delay-interval 5"),
    publish(1, "-t $T/a -m x -D publish content-type a -D PUBLISH user-property b c"),
    publish(
        1,
        "-t $T/a -m x --property publish response-topic a/b --property publish correlation-data 7 -q 1",
    ),
    publish(
        1,
        "-t $T/a -m x -D publish payload-format-indicator 1 -D publish message-expiry-interval 9999999",
    ),
    publish(1, "-t $T/a -m x -D publish topic-alias 3"),
    publish(
        1,
        "-t $T/a -m x -D connect user-property a b -D disconnect user-property c d -D connect receive-maximum 5",
    ),
    publish(
        1,
        "-t $T/a -m x -D connect session-expiry-interval 10 -D disconnect session-expiry-interval 5 -i $I",
    ),
    publish(1, "-t $T/a -m x -D connect topic-alias-maximum 5 -D connect maximum-packet-size 1000 -i $I"),
    publish(
        1,
        "-t $T/a -m x -D connect request-problem-information 0 -D connect request-response-information 1",
    ),
    Row { defaults: "# who\n-t $T/a\n-q 1\n-m from the file\n-d\n-i $I", ..publish(1, "") },
    Row { defaults: "-t $T/b\n\n-q 1\n", ..publish(1, "-t $T/a -m x -d -i $I") },
    // What is printed.
    subscribe(KEPT, "-t $T/a -C 1"),
    subscribe(KEPT, "--topic $T/a -C 1 -v --qos 1"),
    subscribe(KEPT, "-t $T/a -C 1 -N --verbose"),
    subscribe(KEPT, "-t $T/a -C 1 -d -i $I"),
    subscribe(&[], "-t $T/a -E --debug --id $I -V 5"),
    subscribe(KEPT, "-t $T/a -t b -U c -U d -q 1 -E"),
    subscribe(&[], "-t $T/b -t $T/c -q 1 -E -d -i $I"),
    subscribe(KEPT, "-t $T/a --unsubscribe $T/none -C 1"),
    subscribe(KEPT, "-L mqtt://127.0.0.1:$PORT/$T/a -C 1"),
    subscribe(KEPT, "-t $T/a -C 1 --pretty --nodelay --quiet -M 5"),
    subscribe(KEPT, "-t $T/a -R -W 1 --random-filter 100"),
    subscribe(KEPT, "-t $T/a -C 1 -k 10 --will-topic $T/w --will-payload x --will-qos 2 --will-retain"),
    subscribe(KEPT, "-t $T/a -C 1 -A 127.0.0.1 -u ann -P secret -I prefix -x 5"),
    subscribe(KEPT, "-t $T/a -R -W 1"),
    subscribe(KEPT, "-t $T/a -W 1 -d -i $I"),
    subscribe(KEPT, "-t $T/a --retained-only -C 1"),
    subscribe(KEPT, "-t $T/a --remove-retained -W 1"),
    subscribe(KEPT, "-t $T/a --retain-as-published -C 1 -d -i $I -V 5"),
    subscribe(KEPT, "-t $T/a --retain-as-published -C 1 -d -i $I"),
    subscribe(&["pub -t $T/a -m a -r", "pub -t $T/b -m b -r"], "-t $T/+ -T $T/a -C 1 -v"),
    subscribe(
        &["pub -t $T/a -m a -r", "pub -t $T/b -m b -r"],
        "-t $T/+ --filter-out $T/a --filter-out x/# -C 1 -v",
    ),
    subscribe(KEPT, "-t $T/# -t $T/a -C 1 -v"),
    subscribe(
        KEPT,
        "-t $T/a -C 1 -D subscribe subscription-identifier 9 -D subscribe user-property a b -F %S",
    ),
    subscribe(
        KEPT,
        "-t $T/a -C 1 -D connect user-property a b -D disconnect user-property c d -D unsubscribe user-property e f -U x",
    ),
    Row { defaults: "-t $T/a\n-v\n-C 1", ..subscribe(KEPT, "") },
    Row { defaults: "-t $T/a\n-C 5", ..subscribe(KEPT, "-C 1 -t $T/b") },
    // Who is ended by the clock has not done what it was to do, and MQTT 5 can say so.
    Row {
        heard: 1,
        ..subscribe(&[], "-t $T/none -W 1 -V 5 --will-topic $T/will --will-payload gone -d -i $I")
    },
    Row { heard: 2, ..request("-t $T/a -e $T/none -m x -W 1 --will-topic $T/will --will-payload gone") },
    // A session that was kept.
    subscribe(WAITING, "-t $T/# -q 2 -c -i $I -C 4 -v"),
    subscribe(WAITING, "-t $T/# -q 2 --disable-clean-session -i $I -C 4"),
    subscribe(WAITING, "-t $T/# -q 2 -c -i $I -C 4 -F '%t|%p|%q|%r|%l|%x'"),
    subscribe(WAITING, "-t $T/none -q 2 -c -i $I -C 4 -v"),
    subscribe(WAITING, "-t $T/# -q 2 -c -i $I --retained-only -v"),
    subscribe(WAITING, "-t $T/# -q 2 -c -i $I -T $T/a -C 3 -N"),
    subscribe(WAITING, "-t $T/# -q 2 -c -i $I -U $T/# -C 4"),
    // Formats.
    subscribe(KEPT, "-t $T/a -C 1 -F '%p|%q|%r|%l|%m|%x|%X|%A|%C|%D|%E|%F|%P|%R|%S|%%'"),
    subscribe(KEPT, "-t $T/a -C 1 -F '%3p|%3x|%4x|%5X|%-5X|%05x|%12x|%20p|%-20p|%020p|%-020p|%.2x|%1p'"),
    subscribe(KEPT, "-t $T/a -C 1 -F '%30t|%-30t|%030l|%5.2t|%.0t|%3.0t|%0t|%-t|%05t|%10.t'"),
    subscribe(
        KEPT,
        "-t $T/a -C 1 -F '%05l|%-5l|%-05l|%.3l|%5.3l|%5q|%05r|%05m|%5%|%5D|%5P|%5A|%5S|%5E|%5F|%5C|%5R'",
    ),
    subscribe(KEPT, r"-t $T/a -C 1 -F 'a\tb\n\\\a\e\r\v\0c@@'"),
    subscribe(KEPT, "-t $T/a -C 1 -N -F '%p, '"),
    subscribe(KEPT, "-t $T/a -C 1 -F ''"),
    subscribe(KEPT, "-t $T/a -C 1 -v -F 'only %p'"),
    subscribe(
        KEPT,
        "-t $T/a -C 1 -F '@a @A @b @B @C @d @D @e @F @g @G @h @u @U @V @w @W @x @y @Y @z @Z @% @E @O @v @f @+ @q @n @t'",
    ),
    without_digits(subscribe(KEPT, "-t $T/a -C 1 -F '@c|@H|@I|@j|@M|@p|@P|@r|@R|@s|@S|@T|@X|@N'")),
    without_digits(subscribe(KEPT, "-t $T/a -C 1 -F '@k|@l' -R -W 1")),
    without_digits(subscribe(KEPT, "-t $T/a -C 1 -F '%I|%30I|%-30I|%5.5I|%U|%5U'")),
    subscribe(
        PROPERTIES,
        "-t $T/a -C 1 -V 5 -F '%p|%A|%C|%D|%F|%P|%R|%10C|%-10C|%.2C|%.1R|%5F|%010F|%10P|%10D'",
    ),
    subscribe(PROPERTIES, "-t $T/a -C 1 -V 311 -F '%p|%C|%D|%F|%P|%R'"),
    without_digits(subscribe(PROPERTIES, "-t $T/a -C 1 -V 5 -F '%E|%10E|%-10E|%010E'")),
    in_json(subscribe(KEPT, "-t $T/a -C 1 -F %j")),
    in_json(subscribe(KEPT, "-t $T/a -C 1 -F '%j %p' --pretty")),
    in_json(subscribe(KEPT, "-t $T/a -C 1 -F 'x%Jy'")),
    in_json(subscribe(JSON, "-t $T/a -C 1 -F %J")),
    in_json(subscribe(JSON, "-t $T/a -C 1 -F '%J' --pretty")),
    in_json(subscribe(JSON, "-t $T/a -C 1 -F '%j' --pretty")),
    in_json(subscribe(&["pub -t $T/a -q 1 -r -m '\"text\"'"], "-t $T/a -C 1 -q 1 -F '%J %5j'")),
    in_json(subscribe(&["pub -t $T/a -r -m 12.50"], "-t $T/a -C 1 -F '%J'")),
    in_json(subscribe(&["pub -t $T/a -r -m '{\"a\":1} x'"], "-t $T/a -C 1 -F '%J'")),
    in_json(subscribe(
        &["pub -t $T/a -r -m '{\"a\":[0.1,123456789.123456789,12345678901234567890,-5e-7,1e400]}'"],
        "-t $T/a -C 1 -F '%J'",
    )),
    in_json(subscribe(PROPERTIES, "-t $T/none -t $T/a -C 1 -V 311 -F '%j'")),
    in_json(subscribe(WAITING, "-t $T/# -q 2 -c -i $I -C 4 -F '%j'")),
    refused("sub", "-t a -F %"),
    refused("sub", "-t a -F %y"),
    refused("sub", "-t a -F %5."),
    refused("sub", "-t a -F %--5l"),
    refused("sub", "-t a -F %1.2.3t"),
    refused("sub", "-t a -F @"),
    refused("sub", r"-t a -F \q"),
    refused("sub", r"-t a -F \"),
    // Requests and answers.
    request("-t $T/a -e $T/a -m hello"),
    request("-t $T/a -e $T/a -m hello -v -q 1"),
    request("-t $T/a -e $T/a -m hello --verbose --qos 2 -F '%p %q %R %t %D'"),
    request("-t $T/a -e $T/a -m hello -N -D publish correlation-data 7 -F '%R|%D|%p'"),
    request("-t $T/a -e $T/a -m hello -V 311 -F '%R|%D|%p'"),
    request("-t $T/a -e $T/a -m hello --protocol-version 31 -i $I"),
    request("--topic $T/a -e $T/b --message hello -W 1 -d -i $I"),
    request("-t $T/a -e $T/a -n -v"),
    request("-t $T/a -e $T/a -m 1 -x 5 -k 7 -A 127.0.0.1 --nodelay --quiet -I prefix -M 5"),
    request("-t $T/a -e $T/a -m 1 -c -i $I -u ann -P secret --keepalive 7"),
    request("-t $T/a -e $T/a -m 1 --will-topic $T/w --will-payload x --will-qos 1 --will-retain"),
    request("-L mqtt://127.0.0.1:$PORT/$T/a -e $T/a -m 1"),
    request("-t $T/a -e $T/a -m 1 --property connect user-property a b -D subscribe user-property c d"),
    in_json(request("-t $T/a -e $T/a -m '[1, 2]' --pretty -F %J")),
    request("-t $T/a -e $T/b -m x -R -W 1"),
    request("-h nowhere.invalid --host 127.0.0.1 --port $PORT -t $T/a -e $T/a -m 1"),
    request("-t $T/a -e $T/a -m x -D publish response-topic b"),
    refused("rr", "-t a -m x"),
    refused("rr", "-t a -e b"),
    refused("rr", "-t a -e b+ -m x"),
    // What cannot be.
    refused("pub", ""),
    refused("pub", "-t a"),
    refused("pub", "-m a"),
    refused("pub", "-t a -m x -n"),
    refused("pub", "-t a+ -m x"),
    refused("pub", "-t a -m x -Z"),
    refused("pub", "-t a -m x --frobnicate"),
    refused("pub", "-t a -m x stray"),
    refused("pub", "-t a -m x -v"),
    refused("pub", "-t a -m x -p"),
    refused("pub", "-t a -m x -p 99999"),
    better(VALUE, refused("pub", "-t a -m x -p 0")),
    refused("pub", "-t a -m x -q 3"),
    refused("pub", "-t a -m x -k 3"),
    refused("pub", "-t a -m x -V 4"),
    refused("pub", "-t a -m x -M 0"),
    refused("pub", "-t a -m x --repeat 0"),
    refused("pub", "-t a -m x --repeat-delay -1"),
    refused("pub", "-t a -m x -c"),
    refused("pub", "-t a -m x -c -V 5"),
    refused("pub", "-t a -m x -x -1 -V 5"),
    better(UNNAMED, refused("sub", "-t a -c -x 60 -V 5")),
    refused("sub", "-t a -c -I prefix"),
    refused("sub", "-t a -c -I prefix -V 5"),
    refused("sub", "-t a -x -1 -I prefix -V 5"),
    refused("sub", "-t a -c -i me -D connect session-expiry-interval 5"),
    refused("sub", "-t a -x 3 -D connect session-expiry-interval 5"),
    refused("pub", "-t a -m x -x 9999999999"),
    refused("pub", "-t a -m x -x soon"),
    refused("pub", "-t a -m x -i a -I b"),
    refused("pub", "-t a -m x --will-payload y"),
    refused("pub", "-t a -m x --will-retain"),
    refused("pub", "-t a -m x --will-topic y+"),
    refused("pub", "-t a -m x --will-topic y --will-qos 3"),
    refused("pub", "-t a -m x -D"),
    refused("pub", "-t a -m x -D publish content-type"),
    refused("pub", "-t a -m x -D publish user-property y"),
    refused("pub", "-t a -m x -D frobnicate content-type y"),
    refused("pub", "-t a -m x -D publish frobnicate y"),
    better("one sentence for both reasons", refused("pub", "-t a -m x -D publish will-delay-interval 5")),
    refused("pub", "-t a -m x -D auth authentication-method y"),
    refused("pub", "-t a -m x -D publish message-expiry-interval 99999999999"),
    refused("pub", "-t a -m x -D publish topic-alias 70000"),
    refused("pub", "-t a -m x -D publish content-type y -D publish content-type z"),
    refused("pub", "-t a -m x --proxy http://x"),
    refused("pub", "-t a -m x -L http://a/b"),
    refused("pub", "-m x -L mqtt://a"),
    refused("pub", "-t a -f /nowhere"),
    refused("pub", "-t a -s"),
    refused("pub", "-t a -m x --unix /nowhere"),
    refused("pub", "-t a -m x -h 127.0.0.1 -p 1"),
    refused("pub", "-t a -m x -h 127.0.0.1 -p 1 --quiet"),
    // No name has a part of more than 63 letters, so nobody is asked.
    refused("pub", "-t a -m x -h xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"),
    refused("pub", "-t a -m x --proxy socks5h://127.0.0.1:1"),
    refused("sub", ""),
    refused("sub", "-t a#"),
    refused("sub", "-t a -U b#"),
    refused("sub", "-t a -T b#"),
    refused("sub", "-U a"),
    refused("sub", "-t a -C 0"),
    refused("sub", "-t a -W 0"),
    better(VALUE, refused("sub", "-t a -C x")),
    refused("sub", "-t a -R --retained-only"),
    refused("sub", "-t a --random-filter 0"),
    refused("sub", "-t a -m x"),
    refused("sub", "-t a --unix /nowhere"),
    refused("sub", "-t a --proxy socks5h://127.0.0.1:1"),
    refused("sub", "-t a -h 127.0.0.1 -p 1 -d"),
    Row { defaults: "--frobnicate", ..refused("sub", "-t a") },
    Row { defaults: "-p", ..refused("sub", "-t a") },
    refused("rr", "-t a -e b -m x --unix /nowhere"),
    refused("rr", "-t a -e b -m x --proxy socks5h://127.0.0.1:1"),
    // What Pondhawk does not serve: sockets of the machine, TLS, passwords, lists of who may do what.
    with_mosquitto(publish(1, "-t $T/a -m x --unix $SOCKET")),
    with_mosquitto(subscribe(KEPT, "-t $T/a -C 1 --unix $SOCKET")),
    with_mosquitto(request("-t $T/a -e $T/a -m x --unix $SOCKET")),
    with_mosquitto(publish(1, "-t $T/a -m x -p $TLS --cafile $CA")),
    with_mosquitto(publish(1, "-t $T/a -m x -p $TLS --cafile $CA --cert $CERT --key $KEY --keyform pem")),
    with_mosquitto(publish(1, "-t $T/a -m x -p $TLS --capath $TRUSTED --tls-version tlsv1.2")),
    with_mosquitto(publish(
        1,
        "-t $T/a -m x -p $TLS --cafile $CA --tls-version tlsv1.3 --tls-alpn mqtt --insecure",
    )),
    with_mosquitto(publish(
        1,
        "-t $T/a -m x -p $TLS --cafile $CA --ciphers ECDHE-ECDSA-AES128-GCM-SHA256 --tls-version tlsv1.2",
    )),
    with_mosquitto(publish(1, "-t $T/a -m x -p $TLS --cafile $CA --tls-use-os-certs")),
    with_mosquitto(subscribe(
        KEPT,
        "-t $T/a -C 1 -p $TLS --cafile $CA --cert $CERT --key $KEY --keyform pem --insecure",
    )),
    with_mosquitto(subscribe(
        KEPT,
        "-t $T/a -C 1 -p $TLS --capath $TRUSTED --tls-version tlsv1.2 --ciphers HIGH --tls-alpn mqtt",
    )),
    with_mosquitto(subscribe(KEPT, "-t $T/a -C 1 -p $TLS --cafile $CA --tls-use-os-certs")),
    with_mosquitto(request(
        "-t $T/a -e $T/a -m x -p $TLS --cafile $CA --cert $CERT --key $KEY --keyform pem --insecure",
    )),
    with_mosquitto(request(
        "-t $T/a -e $T/a -m x -p $TLS --capath $TRUSTED --tls-version tlsv1.2 --ciphers HIGH --tls-alpn mqtt",
    )),
    with_mosquitto(request("-t $T/a -e $T/a -m x -p $TLS --cafile $CA --tls-use-os-certs")),
    better(WHERE, with_mosquitto(publish(0, "-t $T/a -m x -p $TLS --cafile /nowhere"))),
    refused("pub", "-t a -m x --cert $CERT"),
    refused("pub", "-t a -m x --keyform pem"),
    refused("pub", "-t a -m x --keyform der --cert $CERT --key $KEY"),
    with_mosquitto(publish(1, "-t $T/a -m x -u ann -P secret -p $PORT")),
    better(ONE_LINE, with_mosquitto(publish(0, "-t $T/a -m x -p $PRIVATE"))),
    better(ONE_LINE, with_mosquitto(publish(0, "-t $T/a -m x -p $PRIVATE -V 5"))),
    with_mosquitto(publish(0, "-t $T/a -m x -p $PRIVATE -V 5 --quiet")),
    with_mosquitto(publish(0, "-t $T/a -m x -p $PRIVATE -u ann -P secret -V 5 -d -i $I")),
    with_mosquitto(publish(0, "-t $T/a -m x -p $PRIVATE -P secret")),
    with_mosquitto(subscribe(&[], "-t $T/a -p $PRIVATE -u ann -P wrong")),
    with_mosquitto(subscribe(&[], "-t $T/a -p $PRIVATE -V 5 -i $I")),
    with_mosquitto(request("-t $T/a -e $T/a -m x -p $PRIVATE")),
    with_mosquitto(publish(0, "-t $T/a -m x -p $GUARDED -q 1 -V 5 -d -i $I")),
    with_mosquitto(publish(0, "-t $T/a -m x -p $GUARDED -q 2 -V 5 -d -i $I")),
    with_mosquitto(publish(0, "-t $T/a -m x -p $GUARDED -q 1")),
    with_mosquitto(publish(0, "-t open/$T -m x -p $GUARDED -q 1 -V 5 -d -i $I")),
    with_mosquitto(publish(0, "-t $T/a -m x -D connect authentication-method y -d -i $I")),
    with_mosquitto(subscribe(WAITING, "-t $T/# -q 2 -c -i $I -C 4 -F '%t|%p|%q|%r|%m'")),
    with_mosquitto(subscribe(
        &["sub -t $T/# -q 2 -c -x 60 -V 5 -i $I -E", "pub -t $T/a -q 1 -m one"],
        "-t $T/# -q 2 -c -x 60 -V 5 -i $I -C 1 -v",
    )),
];
