//! Figures for the tests of reports.

use super::balancing::{Balancer, Balancing, Row};
use super::results::{Cell, Claim, Machine, Results, Role, Run, Server, Size, Workload};
use crate::load::Counted;

fn server(name: &str) -> Server {
    Server {
        name: name.into(),
        language: "Rust".into(),
        version: "1".into(),
        command: "command".into(),
        files: Vec::new(),
        fairness: vec!["setting: reason".into()],
        notes: Vec::new(),
        layers: Vec::new(),
        absence: None,
    }
}

pub(super) fn run(per_sec: u64, lost: u64) -> Run {
    Run { messages: per_sec, seconds: 1.0, lost, cpu_secs: Some(1.0), ..Run::default() }
}

pub(super) fn cell(server: &str, size: usize, runs: Vec<Run>) -> Cell {
    Cell { server: server.into(), size, skipped: None, runs }
}

/// A check of durability with these counts of messages.
pub(super) fn claim(server: &str, acknowledged: u64, lost: u64) -> Claim {
    Claim {
        server: server.into(),
        claim: "All is stored.".into(),
        command: "command".into(),
        settings: vec!["setting: reason".into()],
        acknowledged,
        seconds: 2.0,
        lost,
        failure: None,
    }
}

/// A balancer that makes one or two replicas half as fast, in three workloads.
pub(super) fn balancing() -> Balancing {
    let rows = [("direct", 1), ("front", 1), ("direct", 2), ("front", 2)];
    let row = |(balancer, replicas): (&str, u32)| Row {
        name: format!("{balancer} × {replicas}"),
        balancer: balancer.into(),
        replicas,
    };
    let lineups: Vec<Row> = rows.into_iter().map(row).collect();
    let of = |row: &Row| {
        let is_direct = row.balancer == "direct";
        let balancer_cpu_secs = (!is_direct).then_some(0.5);
        let run = |per_sec| Run { balancer_cpu_secs, latency_ms: vec![(99.0, 1.0)], ..run(per_sec, 0) };
        let runs = if is_direct { [200, 201] } else { [100, 101] };
        cell(&row.name, 0, runs.map(run).to_vec())
    };
    let workload = |(title, counted, is_paced): (&str, Counted, bool)| Workload {
        name: title.into(),
        title: title.into(),
        text: "Text.".into(),
        bench: "echo".into(),
        qos: 0,
        counted,
        sizes: vec![Size {
            name: "100 connections".into(),
            connections: 100,
            share_of_best: None,
            is_paced,
            role: Role::Load,
        }],
        cells: lineups.iter().map(of).collect(),
    };
    let (messages, connections) = (Counted::Messages, Counted::Connections);
    let workloads =
        [("echo", messages, false), ("latency", messages, true), ("connects", connections, false)];
    Balancing {
        server: server("mine"),
        balancers: vec![Balancer {
            name: "front".into(),
            version: "1".into(),
            command: "front".into(),
            files: vec![("front.conf".into(), "to {port of replica 1}".into())],
            fairness: vec!["setting: reason".into()],
            notes: Vec::new(),
            absence: None,
        }],
        cpus: None,
        workloads: workloads.map(workload).to_vec(),
        lineups,
    }
}

/// Two sizes; `other` is faster at the first one, and loses a tenth at the second one.
pub(super) fn results() -> Results {
    let size = |name: &str, connections| Size {
        name: name.into(),
        connections,
        share_of_best: None,
        is_paced: false,
        role: Role::Load,
    };
    let cells = vec![
        cell("mine", 0, vec![run(100, 0), run(101, 0)]),
        cell("other", 0, vec![run(200, 0), run(201, 0)]),
        cell("relay", 0, vec![run(900, 0), run(901, 0)]),
        cell("mine", 1, vec![run(100, 0), run(120, 0)]),
        cell("other", 1, vec![run(900, 100), run(900, 100)]),
        cell("relay", 1, vec![Run { failure: Some("ended during the run".into()), ..Run::default() }]),
    ];
    Results {
        title: "A shoot-out".into(),
        command: "pondhawk shootout".into(),
        machine: Machine {
            started: 0,
            processor: "a processor".into(),
            processors: 2,
            memory_bytes: 1 << 30,
            kernel: "6".into(),
            server_cpus: Some("0".into()),
            generator_cpus: None,
            generator: "1".into(),
            file_system: "ext4 on /dev/vda".into(),
            agents: Vec::new(),
        },
        seconds: 1.0,
        interruption: None,
        servers: ["mine", "other", "relay"].map(server).to_vec(),
        workloads: vec![Workload {
            name: "loadtest".into(),
            title: "loadtest".into(),
            text: "Text.".into(),
            bench: "loadtest --conns 100,500".into(),
            qos: 0,
            counted: Counted::Messages,
            sizes: vec![size("100 connections", 100), size("500 connections", 500)],
            cells,
        }],
        claims: Vec::new(),
        balancing: None,
    }
}
