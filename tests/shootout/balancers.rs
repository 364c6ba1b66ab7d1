//! Load balancers in front of replicas: their rows, their faults, and the addresses of clients behind them.

use std::fs;
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddrV4, TcpStream};
use std::path::Path;
use std::process::Command;
use std::thread;
use std::time::Instant;

use pondhawk_tests::packet::Connect;
use pondhawk_tests::{Broker, DEADLINE, Options, Program, Version, free_port, liar};
use rustix::net::{self, AddressFamily, SocketType};
use serde_json::Value;
use toml::Table;

/// The file with the recipes of all balancers.
const RECIPES: &str = include_str!("../../crates/bench/src/shootout/balancing/recipes.toml");

/// The address from which a client connects.
const CLIENT: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 77);

/// A shoot-out with a round of each workload behind these balancers.
fn description(balancers: &[&str], replicas: &[u32], further: &str) -> String {
    let benches = [
        ("echo", "echo --conns 10 --messages 50"),
        ("latency", "echo --conns 10 --rate 1000"),
        ("connects", "connects --count 100 --at-once 10"),
    ];
    let workload = |(name, bench): (&str, &str)| {
        format!("[[balancing.workload]]\nname = \"{name}\"\ntitle = \"{name}\"\nbench = \"{bench}\"\n")
    };
    format!(
        "title = \"Balancers\"\nrounds_min = 2\nrounds_max = 2\nprecision = 0.1\nseconds = 0.2\n\
         warm_up_seconds = 0.1\n{further}\n[balancing]\nserver = \"pondhawk\"\nbalancers = {balancers:?}\n\
         replicas = {replicas:?}\n{}",
        benches.map(workload).concat()
    )
}

/// The one run of a row.
fn run_of<'a>(results: &'a Value, workload: usize, row: &str) -> &'a Value {
    let cells = results["balancing"]["workloads"][workload]["cells"].as_array().unwrap();
    let cell = cells.iter().find(|cell| cell["server"] == row).unwrap_or_else(|| panic!("{row}: {cells:?}"));
    assert_eq!(cell["runs"].as_array().unwrap().len(), 1, "{cell}");
    &cell["runs"][0]
}

#[test]
fn balancers_have_a_row_for_each_number_of_replicas_with_the_cost_of_both() {
    let folder = tempfile::tempdir().unwrap();
    let balancers = ["direct", "haproxy", "haproxy-proxy", "nginx", "ipvs"];
    let beside = "servers = [\"pondhawk\", \"relay\"]\n[[workload]]\nname = \"load\"\ntitle = \"load\"\n\
                  bench = \"loadtest --conns 4,8 --messages 50\"\nwith_relay = true\n";
    let (results, report) = crate::run(folder.path(), &description(&balancers, &[1, 2], beside));
    assert!(results["interruption"].is_null(), "{}", results["interruption"]);
    for (balancer, replicas) in balancers[..4].iter().flat_map(|name| [1, 2].map(|count| (*name, count))) {
        for workload in 0..3 {
            let run = run_of(&results, workload, &format!("{balancer} × {replicas}"));
            assert!(run["failure"].is_null() && run["lost"] == 0, "{balancer} × {replicas}: {run}");
            assert!(run["messages"].as_u64() >= Some(100), "{run}");
            assert_eq!(run["balancer_cpu_secs"].as_f64() > Some(0.0), balancer != "direct", "{run}");
            assert!(run["cpu_secs"].as_f64() > Some(0.0), "{run}");
            // Half of the connections go to each replica.
            assert_eq!(run["busiest_share"].as_f64() < Some(0.9), replicas == 2, "{balancer}: {run}");
        }
    }
    check_ipvs(&results);
    let (_, section) = report.split_once("## Load balancers in front of pondhawk").unwrap();
    for text in
        ["| **1 replica** ", "| haproxy-proxy ", "proxy_pass replicas", "{port of replica 2} send-proxy-v2"]
    {
        assert!(section.contains(text), "{text:?} is missing in {section}");
    }
    crate::look_at(&folder.path().join("report/report.html"));
}

/// Without IPVS in the kernel, the report has the reason. With it, the balancer has its rows.
fn check_ipvs(results: &Value) {
    let balancers = results["balancing"]["balancers"].as_array().unwrap();
    let ipvs = balancers.iter().find(|balancer| balancer["name"] == "ipvs").unwrap();
    let Some(absence) = ipvs["absence"].as_str() else {
        assert!(run_of(results, 0, "ipvs × 2")["failure"].is_null());
        return;
    };
    assert!(absence.starts_with("not possible on this machine") || absence.starts_with("not installed"));
    let rows = results["balancing"]["lineups"].as_array().unwrap();
    assert!(rows.iter().all(|row| row["balancer"] != "ipvs"), "{rows:?}");
}

#[test]
fn a_balancer_that_drops_connections_has_a_row_that_says_so() {
    let folder = tempfile::tempdir().unwrap();
    let program = liar().display().to_string();
    let own = ["honest", "cut", "drop"].map(|fault| {
        format!(
            "[[balancer]]\nname = \"{fault}\"\nprogram = \"{program}\"\n\
             command = \"{program} {fault} {{port}} to {{replicas}}\"\nreplica = \"{{replica_port}} \"\n"
        )
    });
    let names = ["honest", "cut", "drop"];
    let description = description(&names, &[2], "") + &own.concat();
    let (results, report) = crate::run(folder.path(), &description);
    assert!(run_of(&results, 0, "honest × 2")["failure"].is_null());
    let why = run_of(&results, 0, "cut × 2")["failure"].as_str().unwrap_or_default().to_owned();
    assert!(why.contains("connection"), "{why}");
    assert!(run_of(&results, 0, "drop × 2")["lost"].as_u64() > Some(0));
    let (findings, section) = report.split_once("## Load balancers").unwrap();
    for sentence in ["- cut × 2, echo, ", "- drop × 2 loses "] {
        assert!(findings.contains(sentence), "{sentence:?} is missing in {report}");
    }
    assert!(!findings.contains("- honest"), "{report}");
    let row = section.lines().find(|line| line.starts_with("| cut ")).unwrap();
    assert!(row.contains("failed"), "{row}");
}

#[test]
fn a_replica_that_does_not_start_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let dead = "[[server]]\nname = \"pondhawk\"\nprogram = \"sh\"\ncommand = \"sh -c 'exit 3' {port}\"\n";
    let (results, _) = crate::run(folder.path(), &(description(&["direct"], &[2], "") + dead));
    let why = run_of(&results, 0, "direct × 2")["failure"].as_str().unwrap().to_owned();
    assert!(why.starts_with("replica 1 ended with exit status: 3"), "{why}");
}

/// The recipe of `haproxy-proxy` with its settings for the broker.
#[test]
fn a_broker_behind_haproxy_sees_the_addresses_of_the_clients() {
    let folder = tempfile::tempdir().unwrap();
    let settings = "[[listener]]\naddress = \"127.0.0.1:0\"\nproxy_from = [\"127.0.0.0/8\"]\n";
    let broker = Broker::start(&Options { settings: settings.to_owned(), ..Options::default() });
    let port = free_port();
    let _balancer = start("haproxy-proxy", port, broker.address().port(), folder.path());
    let mut client = connect_from_elsewhere(port);
    client.write_all(&Connect::new(Version::V5, "frog").bytes()).unwrap();
    let line = broker.wait_for_log("client_id=frog ");
    let address = client.local_addr().unwrap();
    assert_eq!(address.ip(), CLIENT);
    assert!(line.contains(&format!("peer={address}")), "{line}");
}

/// Starts a balancer with its recipe in front of one replica, and waits until it accepts connections.
fn start(name: &str, port: u16, replica_port: u16, folder: &Path) -> Program {
    let recipes: Table = RECIPES.parse().expect("the recipes are TOML");
    let all = recipes["balancer"].as_array().unwrap();
    let recipe = all.iter().find(|recipe| recipe["name"].as_str() == Some(name)).unwrap();
    let replica = recipe["replica"].as_str().unwrap().replace("{number}", "1");
    let replica = replica.replace("{replica_port}", &replica_port.to_string());
    let filled = |text: &str| {
        let text = text.replace("{replicas}", &replica).replace("{port}", &port.to_string());
        text.replace("{dir}", &folder.display().to_string())
    };
    for (file, text) in recipe["files"].as_table().unwrap() {
        fs::write(folder.join(file), filled(text.as_str().unwrap())).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--pdeathsig", "TERM", "--", "sh", "-c"]);
    command.arg(format!("exec {}", filled(recipe["command"].as_str().unwrap())));
    let balancer = Program::start(command);
    let began = Instant::now();
    while TcpStream::connect((Ipv4Addr::LOCALHOST, port)).is_err() {
        assert!(began.elapsed() < DEADLINE, "the balancer does not start");
        thread::yield_now();
    }
    balancer
}

fn connect_from_elsewhere(port: u16) -> TcpStream {
    let socket = net::socket(AddressFamily::INET, SocketType::STREAM, None).unwrap();
    net::bind(&socket, &SocketAddrV4::new(CLIENT, 0)).unwrap();
    net::connect(&socket, &SocketAddrV4::new(Ipv4Addr::LOCALHOST, port)).unwrap();
    socket.into()
}
