//! Several servers measured in turn, round after round, so that what the machine does meanwhile hits all alike.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::error::{Error, Result};
use crate::host::CpuList;
use crate::interrupt::Interrupt;
use crate::layers::Trust;
use crate::load::Test;
use crate::measure::{Generator, Measured};
use crate::message::RunId;
use crate::progress::Progress;
use crate::server::Contender;

/// Servers, number of rounds, and test of a comparison.
#[derive(Debug)]
pub(crate) struct Campaign {
    pub(crate) contenders: Vec<Contender>,
    pub(crate) rounds: u32,
    pub(crate) generator: Generator,
    /// The processors of servers that are started for a run.
    pub(crate) server_cpus: Option<CpuList>,
    /// Certificates of TLS.
    pub(crate) trust: Trust,
    /// Ends the campaign, and the server that runs at that moment.
    pub(crate) interrupt: Interrupt,
}

/// State of one run.
#[derive(Debug, Clone)]
pub(crate) struct Run {
    pub(crate) contender: usize,
    pub(crate) size: usize,
    pub(crate) round: u32,
    /// Or why it ended early, or could not begin.
    pub(crate) result: std::result::Result<Measured, String>,
}

impl Campaign {
    /// Runs every size on every server, `rounds` times. A server that does not start, or breaks the rules, fails its
    /// run only.
    ///
    /// # Errors
    /// If the machine refuses something to the generator, or there is an interrupt. No server runs on.
    pub(crate) fn run<T: Test>(&self, test: &T) -> Result<Vec<Run>> {
        let sizes = test.sizes();
        let progress = Progress::new(u64::from(self.rounds) * (sizes.len() * self.contenders.len()) as u64);
        let mut runs = Vec::new();
        let mut numbers = 0..;
        for round in 0..self.rounds {
            for (size, size_name) in sizes.iter().enumerate() {
                for (contender, Contender { name, .. }) in self.contenders.iter().enumerate() {
                    let number = numbers.next().unwrap_or_default();
                    if self.contenders[contender].is_relay() && !test.suits_relay(size) {
                        continue;
                    }
                    progress.begin(number, format!("{name}, {size_name}, round {}", round + 1));
                    let look = |arrived, expected| {
                        progress.advance(number, arrived, expected);
                        self.interrupt.check()
                    };
                    let result = self.run_once(test, contender, size, look)?;
                    runs.push(Run { contender, size, round, result });
                }
            }
        }
        progress.end();
        Ok(runs)
    }

    fn run_once<T: Test>(
        &self,
        test: &T,
        contender: usize,
        size: usize,
        look: impl FnMut(u64, u64) -> Result<()>,
    ) -> Result<std::result::Result<Measured, String>> {
        self.interrupt.check()?;
        let server =
            self.contenders[contender].start(self.server_cpus.as_ref(), &self.trust, &self.interrupt);
        let parts = test.parts(size, new_run_id(), self.generator.workers);
        match server.and_then(|server| self.generator.measure(parts, &server.target, look)) {
            Ok(measured) => Ok(Ok(measured)),
            Err(Error::Server(what)) => Ok(Err(what)),
            Err(error) => Err(error),
        }
    }
}

impl Run {
    /// Why the run does not count, if it does not.
    pub(crate) fn failure(&self) -> Option<String> {
        let measured = match &self.result {
            Ok(measured) => measured,
            Err(what) => return Some(what.clone()),
        };
        let tally = measured.outcome.tally;
        let counts = [
            (tally.lost, "lost"),
            (tally.duplicated, "duplicated"),
            (tally.out_of_order, "out of order"),
            (tally.unexpected, "unexpected"),
        ];
        let faults: Vec<_> =
            counts.iter().filter(|(n, _)| *n > 0).map(|(n, what)| format!("{n} {what}")).collect();
        (!tally.is_clean()).then(|| faults.join(", "))
    }
}

/// A number that no other run of the last hour has, on this machine or another.
pub(crate) fn new_run_id() -> RunId {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    // Multiplied, so that runs that start together on several machines differ in more than their last bits.
    let mixed = (now.as_nanos() ^ u128::from(std::process::id())).wrapping_mul(0x9E37_79B9_7F4A_7C15);
    u32::try_from(mixed >> 32 & u128::from(u32::MAX)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::num::NonZeroU32;
    use std::thread;
    use std::time::Duration;

    use nix::sys::signal::kill;
    use nix::unistd::Pid;
    use wire::Version;

    use super::*;
    use crate::exchange::Quality;
    use crate::layers::{Over, ServerStack, TrustArgs, server_config};
    use crate::load::{
        ChurnPlace, ChurnPlan, ConnectTest, EchoTest, FloodTest, HandshakeTest, Handshakes, IdleTest,
        InnocentPlan, ManyTest, Pattern, PingtestSize, PingtestTest, SlowConsumerTest, Storm, TroubleTest,
    };
    use crate::relay::Relay;
    use crate::server::RunningServer;

    const VERSIONS: [Version; 3] = Version::ALL;

    /// A relay that lives as long as the tests.
    fn relay(stack: ServerStack) -> SocketAddr {
        let relay = Relay::bind("127.0.0.1:0".parse().unwrap(), stack).unwrap();
        let address = relay.local_address().unwrap();
        thread::spawn(|| relay.run());
        address
    }

    /// Runs a test against the relay with one thread and with two, and returns the messages that counted.
    fn messages_of<T: Test>(test: &T, version: Version) -> Vec<u64> {
        messages_over(Over::Tcp, test, version)
    }

    /// The same over other layers.
    fn messages_over<T: Test>(over: Over, test: &T, version: Version) -> Vec<u64> {
        let made = Trust::new(&TrustArgs::default(), true, over.has_tls()).unwrap();
        let tls = made.made().map(|made| server_config(&made.chain(), &made.key()).unwrap());
        let address = relay(ServerStack { tls, websocket: over.has_websocket() });
        let server: RunningServer = format!("relay={address}").parse().unwrap();
        let mut campaign = Campaign {
            contenders: vec![Contender::running(server, over)],
            rounds: 1,
            generator: Generator { workers: 1, cpus: None, version },
            server_cpus: None,
            trust: made,
            interrupt: Interrupt::default(),
        };
        let mut messages = Vec::new();
        for workers in [1, 2] {
            campaign.generator.workers = workers;
            let runs = campaign.run(test).unwrap();
            assert_eq!(runs.len(), test.sizes().len());
            for run in runs {
                assert_eq!(run.failure(), None);
                messages.push(run.result.unwrap().outcome.messages);
            }
        }
        messages
    }

    fn flood(pattern: Pattern, per_write: u64, payload_len: usize, version: Version) -> FloodTest {
        let quality = Quality::AT_MOST_ONCE;
        FloodTest {
            pattern,
            sizes: vec![10],
            messages: 200,
            per_write,
            payload_len,
            quality,
            version,
            churn: None,
        }
    }

    #[test]
    fn loadtest_delivers_everything_in_every_version() {
        for version in VERSIONS {
            assert_eq!(messages_of(&flood(Pattern::Pairs, 64, 16, version), version), [1_000, 1_000]);
        }
    }

    #[test]
    fn loadtest_delivers_everything_when_the_kernel_takes_packets_in_pieces() {
        let test = flood(Pattern::Pairs, 7, 100_000, Version::V5);
        assert_eq!(messages_of(&test, Version::V5), [1_000, 1_000]);
    }

    #[test]
    fn loadtest_delivers_everything_over_all_layers() {
        for over in [Over::Tls, Over::Ws, Over::Wss] {
            for (per_write, payload_len) in [(64, 16), (1, 16), (7, 20_000)] {
                let test = flood(Pattern::Pairs, per_write, payload_len, Version::V5);
                assert_eq!(messages_over(over, &test, Version::V5), [1_000, 1_000], "{over:?}");
            }
        }
    }

    #[test]
    fn clients_come_back_over_all_layers() {
        let innocents = InnocentPlan { pairs: 2, rate: 1_000.0, duration: Duration::from_millis(100) };
        let test = TroubleTest { trouble: Storm { clients: 20 }, innocents, version: Version::V5 };
        for over in [Over::Tls, Over::Ws, Over::Wss] {
            assert_eq!(messages_over(over, &test, Version::V5), [0; 6]);
        }
    }

    #[test]
    fn handshakes_are_full_or_resumed_as_asked_for() {
        let handshakes = Handshakes { count: 100, at_once: 5, rate: None };
        for over in [Over::Tls, Over::Wss] {
            let test = HandshakeTest { handshakes: handshakes.clone(), version: Version::V5 };
            assert_eq!(messages_over(over, &test, Version::V5), [100; 4]);
        }
        let innocents = InnocentPlan { pairs: 2, rate: 1_000.0, duration: Duration::from_millis(100) };
        let trouble = Handshakes { rate: Some(1_000.0), ..handshakes };
        let test = TroubleTest { trouble, innocents, version: Version::V5 };
        assert_eq!(messages_over(Over::Tls, &test, Version::V5), [0; 8]);
    }

    #[test]
    fn clients_connect_and_leave_with_and_without_layers() {
        let visits = Handshakes { count: 100, at_once: 5, rate: None };
        for over in [Over::Tcp, Over::Tls, Over::Ws] {
            let test = ConnectTest { visits: visits.clone(), version: Version::V5 };
            assert_eq!(messages_over(over, &test, Version::V5), [100, 100]);
        }
    }

    #[test]
    fn a_certificate_of_somebody_else_fails_the_run() {
        let [ours, theirs] = [(); 2].map(|()| Trust::new(&TrustArgs::default(), true, true).unwrap());
        let made = theirs.made().unwrap();
        let tls = Some(server_config(&made.chain(), &made.key()).unwrap());
        let address = relay(ServerStack { tls, websocket: false });
        let server = format!("relay={address}").parse().unwrap();
        let runs = run_with(vec![Contender::running(server, Over::Tls)], ours, Interrupt::default()).unwrap();
        let failure = runs[0].failure().unwrap();
        assert!(failure.contains("invalid peer certificate"), "{failure}");
    }

    #[test]
    fn loadtest_delivers_everything_while_other_topics_come_and_go() {
        for (version, place) in
            VERSIONS.into_iter().zip([ChurnPlace::Apart, ChurnPlace::Beside].into_iter().cycle())
        {
            let topics_per_sec = NonZeroU32::new(10_000).unwrap();
            let plan = ChurnPlan { topics_per_sec, place };
            let test = FloodTest { churn: Some(plan), ..flood(Pattern::Pairs, 1, 16, version) };
            assert_eq!(messages_of(&test, version), [1_000, 1_000]);
        }
    }

    #[test]
    fn fanout_counts_what_every_subscriber_gets() {
        let test = flood(Pattern::OneToMany, 1, 16, Version::V3_1_1);
        assert_eq!(messages_of(&test, Version::V3_1_1), [2_000, 2_000]);
    }

    #[test]
    fn fanin_keeps_the_publishers_apart() {
        let test = flood(Pattern::ManyToOne, 64, 3_000, Version::V3_1_1);
        assert_eq!(messages_of(&test, Version::V3_1_1), [2_000, 2_000]);
    }

    fn pingtest(rate: Option<f64>) -> PingtestTest {
        let sizes = vec![
            PingtestSize { pairs: 5, wildcard_subscribers: 3 },
            PingtestSize { pairs: 1, wildcard_subscribers: 0 },
        ];
        let (quality, version) = (Quality::AT_MOST_ONCE, Version::V5);
        PingtestTest { sizes, messages: 100, rate, payload_len: 16, quality, version }
    }

    #[test]
    fn pingtest_counts_requests_and_replies_and_times_each_pair() {
        assert_eq!(messages_of(&pingtest(None), Version::V5), [1_000, 200, 1_000, 200]);
    }

    #[test]
    fn pingtest_keeps_to_a_schedule() {
        assert_eq!(messages_of(&pingtest(Some(10_000.0)), Version::V5), [1_000, 200, 1_000, 200]);
    }

    #[test]
    fn echoes_come_back_to_their_clients_one_by_one_ahead_and_on_schedule() {
        for (ahead, rate) in [(1, None), (7, None), (1_000, None), (1, Some(50_000.0))] {
            for version in VERSIONS {
                let (sizes, qos) = (vec![5, 10], wire::Qos::AtMostOnce);
                let test = EchoTest { sizes, messages: 100, ahead, rate, payload_len: 16, qos, version };
                assert_eq!(messages_of(&test, version), [500, 1_000, 500, 1_000]);
            }
        }
    }

    #[test]
    fn many_connect_and_publish_to_themselves() {
        let test = ManyTest {
            sizes: vec![50],
            ramp_per_sec: 10_000.0,
            interval: Duration::from_millis(20),
            duration: Duration::from_millis(200),
            payload_len: 16,
            quality: Quality::AT_MOST_ONCE,
            version: Version::V3_1,
        };
        assert!(messages_of(&test, Version::V3_1).iter().all(|&messages| messages >= 50));
    }

    #[test]
    fn idle_connections_are_opened_and_closed() {
        let test = IdleTest { sizes: vec![100], subscribe: true, version: Version::V3_1_1 };
        assert_eq!(messages_of(&test, Version::V3_1_1), [0, 0]);
    }

    #[test]
    fn clients_come_back_after_a_storm() {
        let innocents = InnocentPlan { pairs: 2, rate: 1_000.0, duration: Duration::from_millis(100) };
        let test = TroubleTest { trouble: Storm { clients: 50 }, innocents, version: Version::V5 };
        assert_eq!(messages_of(&test, Version::V5), [0; 6]);
    }

    #[test]
    fn pairs_are_measured_alone_and_beside_laggards() {
        let flood = FloodTest { messages: 20, ..flood(Pattern::Pairs, 1, 16, Version::V5) };
        assert_eq!(messages_of(&SlowConsumerTest { flood }, Version::V5), [100; 6]);
    }

    /// Runs the shortest loadtest, twice, on these.
    fn run_on(contenders: Vec<Contender>, interrupt: Interrupt) -> Result<Vec<Run>> {
        run_with(contenders, Trust::default(), interrupt)
    }

    fn run_with(contenders: Vec<Contender>, trust: Trust, interrupt: Interrupt) -> Result<Vec<Run>> {
        let generator = Generator { workers: 2, cpus: None, version: Version::V5 };
        let campaign = Campaign { contenders, rounds: 2, generator, server_cpus: None, trust, interrupt };
        campaign.run(&flood(Pattern::Pairs, 64, 16, Version::V5))
    }

    fn spawned(command: &str) -> Contender {
        // The shell takes the text behind the sign as a comment.
        Contender::command(format!("spawned={command} # {{port}}").parse().unwrap(), Over::Tcp)
    }

    #[test]
    fn a_server_that_is_not_there_fails_its_runs_and_not_the_campaign() {
        let gone = Contender::running("gone=127.0.0.1:1".parse().unwrap(), Over::Tcp);
        let runs = run_on(vec![gone], Interrupt::default()).unwrap();
        assert!(runs.len() == 2 && runs.iter().all(|run| run.failure().is_some()));
    }

    #[test]
    fn a_server_that_does_not_start_fails_its_runs_and_not_those_of_others() {
        let address = relay(ServerStack::default());
        let relay = Contender::running(format!("relay={address}").parse().unwrap(), Over::Tcp);
        let runs = run_on(vec![spawned("false"), relay], Interrupt::default()).unwrap();
        let failures: Vec<_> = runs.iter().map(Run::failure).collect();
        let [Some(first), None, Some(second), None] = &failures[..] else { panic!("{failures:?}") };
        assert!(first == second && first.contains("before it accepted connections"), "{first}");
    }

    #[test]
    fn a_signal_ends_the_campaign_and_the_server_that_it_has_started() {
        let pid_file = std::env::temp_dir().join(format!("pondhawk-bench-test-{}", std::process::id()));
        // A server that is in no hurry to accept connections, while somebody ends the program.
        let script = format!("echo $$ > {}; kill -TERM $PPID; exec sleep 1000", pid_file.display());
        let server = spawned(&format!("sh -c '{script}'"));
        let error = run_on(vec![server], Interrupt::on_signals().unwrap()).unwrap_err();
        assert!(matches!(error, Error::Interrupted { signal: 15 }), "{error}");
        let pid = std::fs::read_to_string(&pid_file).unwrap().trim().parse().unwrap();
        std::fs::remove_file(pid_file).unwrap();
        assert_eq!(kill(Pid::from_raw(pid), None), Err(nix::Error::ESRCH));
    }
}
