//! Agents: generators in processes of their own that divide a load, and start together.

use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

use pondhawk_tests::{DEADLINE, Program, pondhawk};
use tempfile::TempDir;

/// An agent that listens.
struct Agent {
    program: Program,
    address: SocketAddr,
}

fn token(folder: &Path, text: &str) -> PathBuf {
    let file = folder.join("token");
    fs::write(&file, text).unwrap();
    file
}

fn start(token: &Path) -> Agent {
    let mut command = Command::new(pondhawk());
    command.args(["shootout", "agent", "--listen", "127.0.0.1:0", "--token-file"]).arg(token);
    let program = Program::start(command);
    let line = program.wait_for("listening on ");
    let address = line.strip_prefix("listening on ").unwrap().trim().parse().unwrap();
    Agent { program, address }
}

/// The command for a shoot-out whose load comes from these agents.
fn shootout(folder: &Path, description: &str, agents: &[&Agent], token: &Path) -> Command {
    let mut command = crate::command(folder, description);
    let addresses: Vec<String> = agents.iter().map(|agent| agent.address.to_string()).collect();
    command.arg("--agents").arg(addresses.join(",")).arg("--token-file").arg(token);
    command
}

fn folders() -> (TempDir, TempDir) {
    (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap())
}

#[test]
fn two_agents_divide_a_load_start_together_and_count_what_is_lost() {
    let (folder, secrets) = folders();
    let token = token(secrets.path(), "a frog in a pond\n");
    let agents = [start(&token), start(&token)];
    let workload = "bench = \"echo --conns 21 --rate 2000\"\n\
                    [[workload]]\nname = \"flood\"\ntitle = \"flood\"\n\
                    bench = \"loadtest --conns 20 --messages 500\"";
    let description = crate::description(&["honest", "drop"], workload);
    let [one, another] = &agents;
    Program::start(shootout(folder.path(), &description, &[one, another], &token)).finish();
    let (results, report) = crate::read(folder.path());
    assert!(results["interruption"].is_null(), "{}", results["interruption"]);
    let known = results["machine"]["agents"].as_array().unwrap();
    let addresses: Vec<&str> = known.iter().map(|agent| agent["address"].as_str().unwrap()).collect();
    assert_eq!(addresses, agents.each_ref().map(|agent| agent.address.to_string()));
    for workload in 0..2 {
        let cells = results["workloads"][workload]["cells"].as_array().unwrap();
        let run = |server: &str| &cells.iter().find(|cell| cell["server"] == server).unwrap()["runs"][0];
        let honest = run("honest");
        assert!(honest["failure"].is_null() && honest["lost"] == 0, "{honest}");
        assert_eq!(honest["latency_ms"].as_array().unwrap().is_empty(), workload == 1, "{honest}");
        assert!(honest["cpu_secs"].as_f64() > Some(0.0), "{honest}");
        let uncertainty = honest["concert"]["uncertainty_ms"].as_f64().unwrap();
        assert!(uncertainty > 0.0, "{honest}");
        assert!(workload == 0 || run("drop")["lost"].as_u64() > Some(0), "{}", run("drop"));
    }
    // Half of a second at this rate; each client sends whole messages.
    let paced = &results["workloads"][0]["cells"][0]["runs"][0];
    assert!((900..=1_100).contains(&paced["messages"].as_u64().unwrap()), "{paced}");
    assert!(report.contains("The load came from agents: 127.0.0.1:"), "{report}");
    // Both have had clients: 11 of the 21 are those of the first one.
    for agent in &agents {
        let line = agent.program.wait_for(" messages");
        assert!(!line.ends_with(": 0 messages"), "{line}");
    }
}

#[test]
fn an_agent_serves_nobody_without_its_token_and_then_the_next_one() {
    let (folder, secrets) = folders();
    let own = token(secrets.path(), "a frog in a pond");
    let agent = start(&own);
    let description = crate::description(&["honest"], "bench = \"echo --conns 2 --messages 10\"");
    let other = folder.path().join("other");
    fs::write(&other, "a toad in a pond").unwrap();
    let output = shootout(folder.path(), &description, &[&agent], &other).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("has another token"), "{said}");
    // Somebody who does not know the protocol, and somebody who wants a load without a proof.
    let nonce = "[0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0]";
    let hello = format!("{{\"kind\":\"hello\",\"protocol\":1,\"nonce\":{nonce}}}\n");
    let job = "{\"bench\":\"echo\",\"size\":0,\"amount\":\"as_written\",\"run\":1,\"first\":0,\"threads\":1,\
               \"addresses\":[\"127.0.0.1:1\"]}";
    let run = format!("{{\"kind\":\"run\",\"proof\":[1,2,3],\"job\":{job}}}\n");
    for bytes in ["GET / HTTP/1.1\r\n\r\n".to_owned(), hello + &run] {
        let mut stream = TcpStream::connect(agent.address).unwrap();
        stream.set_read_timeout(Some(DEADLINE)).unwrap();
        stream.write_all(bytes.as_bytes()).unwrap();
        let mut answer = String::new();
        // A reset is an end, too.
        let _ = stream.read_to_string(&mut answer);
        assert!(!answer.contains("ready"), "{answer}");
    }
    agent.program.wait_for("does not have the token");
    Program::start(shootout(folder.path(), &description, &[&agent], &own)).finish();
    let (results, _) = crate::read(folder.path());
    assert!(results["workloads"][0]["cells"][0]["runs"][0]["messages"].as_u64() > Some(0));
}

#[test]
fn an_agent_that_goes_away_ends_the_shoot_out_with_a_report_that_says_so() {
    let (folder, secrets) = folders();
    let token = token(secrets.path(), "a frog in a pond");
    let (stays, goes) = (start(&token), start(&token));
    let description = crate::description(&["honest"], "bench = \"echo --conns 2 --rate 100\"");
    let description = description.replace("seconds = 0.5", "seconds = 60.0");
    let program = Program::start(shootout(folder.path(), &description, &[&stays, &goes], &token));
    // A minute of messages on schedule.
    goes.program.wait_for("--messages 3000 --rate 100");
    let address = goes.address;
    goes.program.kill();
    program.finish();
    let (results, _) = crate::read(folder.path());
    let why = results["interruption"].as_str().unwrap_or_default();
    assert!(why.contains(&format!("use the agent {address}")), "{why}");
}

#[test]
fn loads_that_agents_cannot_divide_are_refused() {
    let (folder, secrets) = folders();
    let token = token(secrets.path(), "a frog in a pond");
    let agent = start(&token);
    let description = crate::description(&["honest"], "bench = \"fanout --conns 4\"");
    let output = shootout(folder.path(), &description, &[&agent], &token).output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("agents divide loadtest"), "{said}");
}
