//! Who waits for whom, and who is refused without a check.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use auth::{
    Access, Admission, Login, LoginNames, NoLoginNames, PasswordHash, Question, Scheme, SourceSettings,
    TokenCheck, TokenKeys, TokenProblem, TokenRules, Tokens, UserService, UserSource, Users, Verdict,
    Voucher, Wish,
};
use stream::Peer;

use base::{ConnectionId, ShardId};

use super::*;

fn users() -> Users {
    let mut users = Users::default();
    for name in ["frog", "toad"] {
        let hash = PasswordHash::new(Scheme::MOSQUITTO, b"right", b"twelve bytes").expect("a hash");
        users.add(name, hash).expect("a user");
    }
    users
}

/// A verifier whose threads are the test.
struct Desk(Arc<Verifier>, Wish);

impl Desk {
    fn new() -> Self {
        Self(Verifier::new().expect("random numbers"), Wish::default())
    }

    /// The answers of the clerk, each with its connection, after another password has come.
    fn submit(&self, slot: u32, address: &str, (user, password): (&str, &[u8])) -> Vec<(u32, Checked)> {
        self.submit_check(slot, address, users().check(user, password).into(), 0)
    }

    fn sort(&self, now_ms: u64) -> Vec<(u32, Checked)> {
        self.0.sort((now_ms, 0)).into_iter().map(|(asker, checked)| (asker.slot(), checked)).collect()
    }

    fn submit_check(&self, slot: u32, address: &str, check: Check, now_ms: u64) -> Vec<(u32, Checked)> {
        self.0.submit(&mut vec![job(slot, address, check, now_ms, &self.1)]);
        self.sort(now_ms)
    }

    /// Asks the next question.
    fn ask_next(&self, now_ms: u64) -> (u32, Checked) {
        self.take(Work::Asking, now_ms)
    }

    /// Checks the next password. Returns whose it is, and the outcome.
    fn next(&self) -> (u32, Checked) {
        self.take(Work::Computing, 0)
    }

    fn take(&self, work: Work, now_ms: u64) -> (u32, Checked) {
        let job = self.0.next((work, true)).expect("one waits");
        (job.slot(), self.0.check(&job, (now_ms, 0), run))
    }
}

fn run(check: &Check, unix_secs: u64) -> Checked {
    check.run_in(&mut Workspace::default(), unix_secs)
}

fn job(slot: u32, address: &str, check: Check, now_ms: u64, wish: &Wish) -> Job {
    let peer = Peer::from(std::net::SocketAddr::new(address.parse().expect("an address"), 1));
    Job::new(now_ms, (ShardId::new(0), ConnectionId { slot, generation: 0 }), &peer, check, wish)
}

const RIGHT: (&str, &[u8]) = ("frog", b"right");
const WRONG: (&str, &[u8]) = ("frog", b"wrong");

/// Guesses at the admin server make nobody suspect who has the same address, and the other way round.
#[test]
fn operators_and_clients_of_an_address_do_not_keep_each_other_out() {
    let desk = Desk::new();
    let address = "192.0.2.1".parse().expect("an address");
    let outcome = Arc::new(Mutex::new(None));
    let of_operator = |password: &[u8]| {
        let (check, told) = (users().check("frog", password).into(), Arc::clone(&outcome));
        let answer = move |checked| *told.lock().expect("it is free") = Some(checked);
        desk.0.submit(&mut vec![Job::of_operator(0, address, check, &desk.1, answer)]);
    };
    for _ in 0..31 {
        of_operator(b"wrong");
        for (asker, checked) in desk.0.sort((0, 0)) {
            if let Asker::Operator(answer) = asker {
                answer(checked);
            }
        }
        let job = desk.0.lock().next(Work::Computing, true);
        if let Some(job) = job {
            assert_eq!(desk.0.check(&job, (0, 0), run), Checked::Wrong);
        }
    }
    assert_eq!(*outcome.lock().expect("it is free"), Some(Checked::Not(Unchecked::Guessing)));
    assert_eq!(desk.submit(1, "192.0.2.1", WRONG), [], "a client may guess still");
    assert!(desk.0.lock().lines[0].suspect.is_empty(), "and is not suspect");
    assert_eq!(desk.next(), (1, Checked::Wrong));
}

#[test]
fn passwords_of_an_address_with_wrong_ones_wait_for_all_others() {
    let desk = Desk::new();
    let none = Vec::new();
    assert_eq!(desk.submit(1, "192.0.2.1", WRONG), none);
    assert_eq!(desk.submit(2, "192.0.2.1", RIGHT), none);
    assert_eq!(desk.next(), (1, Checked::Wrong));
    for (slot, address) in [(3, "192.0.2.2"), (4, "192.0.2.3")] {
        assert_eq!(desk.submit(slot, address, RIGHT), none);
    }
    let order = [(); 3].map(|()| desk.next());
    assert_eq!(order, [3, 4, 2].map(|slot| (slot, Checked::Right)));
}

#[test]
fn a_thread_leaves_suspects_alone() {
    let desk = Desk::new();
    desk.submit(1, "192.0.2.1", WRONG);
    desk.next();
    desk.submit(2, "192.0.2.1", WRONG);
    desk.submit(3, "192.0.2.2", RIGHT);
    assert_eq!(desk.0.next((Work::Computing, false)).expect("one waits").slot(), 3);
    let waiting = desk.0.lock();
    assert!(
        waiting.lines[Work::Computing as usize].first.is_empty()
            && !waiting.lines[Work::Computing as usize].suspect.is_empty()
    );
}

#[test]
fn a_password_that_was_right_before_passes_all_limits_and_lines() {
    let desk = Desk::new();
    desk.submit(0, "192.0.2.1", RIGHT);
    assert_eq!(desk.next(), (0, Checked::Right));
    (1..=30).for_each(|slot| {
        desk.submit(slot, "192.0.2.1", WRONG);
        desk.next();
    });
    assert_eq!(desk.submit(31, "192.0.2.1", WRONG), [(31, Checked::Not(Unchecked::Guessing))]);
    let addresses = (0..5_000_u32).map(|number| std::net::Ipv4Addr::from_bits(number).to_string());
    addresses.for_each(|address| drop(desk.submit(32, &address, WRONG)));
    assert_eq!(desk.submit(33, "192.0.2.1", RIGHT).last(), Some(&(33, Checked::Right)));
}

/// Without this limit, the passwords that were right before could be guessed as fast as clients connect.
#[test]
fn an_address_that_has_guessed_far_too_often_is_refused_without_a_look() {
    let desk = Desk::new();
    let refuses = |address, (user, password): (&str, &[u8])| {
        desk.0.refuses(&job(99, address, users().check(user, password).into(), 0, &desk.1))
    };
    desk.submit(0, "192.0.2.1", RIGHT);
    assert_eq!(desk.next(), (0, Checked::Right));
    for slot in 1..=30 {
        assert_eq!(desk.submit(slot, "192.0.2.1", WRONG), []);
        desk.next();
    }
    // The first password was unknown when it came, and 30 were wrong.
    for slot in 0..100 - 31 {
        assert!(!refuses("192.0.2.1", WRONG), "{slot}");
        assert_eq!(desk.submit(slot, "192.0.2.1", RIGHT), [(slot, Checked::Right)], "it was right before");
        assert_eq!(desk.submit(slot, "192.0.2.1", WRONG), [(slot, Checked::Not(Unchecked::Guessing))]);
    }
    for password in [RIGHT, WRONG] {
        assert!(refuses("192.0.2.1", password));
        let refused = [(200, Checked::Not(Unchecked::Guessing))];
        assert_eq!(desk.submit(200, "192.0.2.1", password), refused, "the clerk does the same");
    }
    assert!(!refuses("192.0.2.2", WRONG) && !refuses("192.0.2.1", ("toad", b"wrong")));
    let waiting = desk.0.lock();
    assert!(!refuses("192.0.2.1", WRONG), "a shard does not wait for another thread");
    drop(waiting);
}

/// Most passwords of a flood are never checked, because they give way to others in their line.
#[test]
fn passwords_that_nobody_checks_count_as_looks() {
    let desk = Desk::new();
    desk.submit(0, "192.0.2.1", RIGHT);
    assert_eq!(desk.next(), (0, Checked::Right));
    desk.submit(1, "192.0.2.1", WRONG);
    assert_eq!(desk.next(), (1, Checked::Wrong));
    (2..400).for_each(|slot| drop(desk.submit(slot, "192.0.2.1", WRONG)));
    let refused = [(400, Checked::Not(Unchecked::Guessing))];
    assert_eq!(desk.submit(400, "192.0.2.1", RIGHT), refused, "it could be a guess");
    assert_eq!(desk.submit(401, "192.0.2.2", RIGHT), [(401, Checked::Right)]);
}

/// An address is suspect only after one of its slow checks has ended, and a burst is over long before.
#[test]
fn a_burst_from_a_clean_address_has_no_more_looks_than_a_suspect_address() {
    let desk = Desk::new();
    desk.submit(0, "192.0.2.1", RIGHT);
    assert_eq!(desk.next(), (0, Checked::Right));
    let mut slots = 1..;
    let mut burst = |passwords: &[(&str, &[u8])]| {
        let jobs = passwords.iter().zip(slots.by_ref());
        let job = |((user, password), slot): (&(&str, &[u8]), u32)| {
            job(slot, "192.0.2.2", users().check(user, password).into(), 0, &desk.1)
        };
        desk.0.submit(&mut jobs.map(job).collect());
        (0..5).flat_map(|_| desk.sort(0)).collect::<Vec<_>>()
    };
    assert_eq!(burst(&[WRONG; 50]), []);
    assert_eq!(burst(&[WRONG; 49]), []);
    assert_eq!(burst(&[WRONG, RIGHT]), [], "the 101st, which the clerk takes together with the one before");
    assert_eq!(burst(&[WRONG; 49]), []);
    assert_eq!(burst(&[RIGHT]), [], "the 151st");
    assert_eq!(desk.submit(152, "192.0.2.3", RIGHT), [(152, Checked::Right)], "another address");
    // The user has lost no access. Wrong passwords in the same line cost a slow check each, up to the limit.
    let mut runs = 0;
    let mut check = || {
        let job = desk.0.next((Work::Computing, true)).expect("it waits");
        let checked = desk.0.check(&job, (0, 0), |check, unix_secs| {
            runs += 1;
            run(check, unix_secs)
        });
        (job.slot(), checked)
    };
    assert_eq!(check(), (151, Checked::Right));
    for number in 0..60 {
        let expected = if number < 30 { Checked::Wrong } else { Checked::Not(Unchecked::Guessing) };
        assert_eq!(check().1, expected, "{number}");
    }
    assert_eq!(runs, 30);
}

/// After a restart, nobody's password is remembered. The looks of the address are used up before the first check has ended.
#[test]
fn a_fleet_with_one_account_waits_for_one_slow_check() {
    let desk = Desk::new();
    for slot in 0..500 {
        assert_eq!(desk.submit(slot, "192.0.2.1", RIGHT), []);
    }
    let mut runs = 0;
    for _ in 0..500 {
        let job = desk.0.next((Work::Computing, true)).expect("it waits");
        let checked = desk.0.check(&job, (0, 0), |check, unix_secs| {
            runs += 1;
            run(check, unix_secs)
        });
        assert_eq!(checked, Checked::Right);
    }
    assert_eq!(runs, 1);
}

/// Each device of a fleet is right, and none of them takes a look away from the others.
#[test]
fn a_fleet_behind_one_address_logs_in_with_remembered_passwords_however_many_devices_it_has() {
    let desk = Desk::new();
    desk.submit(0, "192.0.2.1", RIGHT);
    assert_eq!(desk.next(), (0, Checked::Right));
    for slot in 1..2_000 {
        assert_eq!(desk.submit(slot, "192.0.2.1", RIGHT), [(slot, Checked::Right)]);
    }
}

#[test]
fn a_device_with_an_old_password_locks_out_nobody_else_behind_its_address() {
    let desk = Desk::new();
    for slot in 1..=30 {
        assert_eq!(desk.submit(slot, "192.0.2.1", WRONG), []);
        assert_eq!(desk.next(), (slot, Checked::Wrong));
    }
    assert_eq!(desk.submit(31, "192.0.2.1", RIGHT), [(31, Checked::Not(Unchecked::Guessing))]);
    assert_eq!(desk.submit(32, "192.0.2.1", ("toad", b"right")), []);
    assert_eq!(desk.next(), (32, Checked::Right));
}

#[test]
fn a_line_is_bounded_by_bytes_and_the_displaced_get_an_answer() {
    let desk = Desk::new();
    let long = vec![b'x'; 60_000];
    let answers: Vec<_> = (0..100).flat_map(|slot| desk.submit(slot, "192.0.2.9", ("frog", &long))).collect();
    let answers: Vec<_> = answers.into_iter().chain(desk.sort(0)).collect();
    let kept = WAITING_BYTES_MAX / 60_100;
    let expected = 0..100 - u32::try_from(kept).expect("it fits");
    let expected: Vec<_> = expected.map(|slot| (slot, Checked::Not(Unchecked::Busy))).collect();
    assert_eq!(answers, expected);
}

/// The first part has a wrong signature, as all tokens that somebody makes up. The second names a key that is unknown.
#[test]
fn made_up_tokens_are_guesses_and_others_are_none() {
    const MADE_UP: &str = "eyJhbGciOiJIUzI1NiJ9.e30.AAAA";
    const OF_OTHERS: &str = "eyJhbGciOiJFUzI1NiJ9.e30.AAAA";
    let keys = TokenKeys::of_file("a secret that has thirty-two bytes").expect("a secret");
    let tokens = Arc::new(Tokens::new(TokenRules::default(), keys));
    let desk = Desk::new();
    let submit = |slot, token: &str| {
        let peer = Peer::from(std::net::SocketAddr::from(([192, 0, 2, 1], 1)));
        let connection = ConnectionId { slot, generation: 0 };
        let check = TokenCheck::new(&tokens, token.as_bytes(), None);
        desk.0.submit(&mut vec![Job::new(
            0,
            (ShardId::new(0), connection),
            &peer,
            Check::Token(check),
            &desk.1,
        )]);
        desk.sort(0)
    };
    for slot in 0..1_000 {
        assert_eq!(submit(slot, OF_OTHERS), []);
        assert_eq!(desk.next(), (slot, Checked::BadToken(TokenProblem::UnknownKey)));
    }
    for slot in 0..30 {
        assert_eq!(submit(slot, MADE_UP), []);
        assert_eq!(desk.next(), (slot, Checked::BadToken(TokenProblem::Signature)));
    }
    assert_eq!(submit(30, MADE_UP), [(30, Checked::Not(Unchecked::Guessing))]);
    assert_eq!(submit(31, OF_OTHERS), [], "another token, and another user, of the address");
}

#[test]
fn a_password_that_has_waited_too_long_is_not_checked() {
    let desk = Desk::new();
    desk.submit(1, "192.0.2.1", RIGHT);
    desk.submit(2, "192.0.2.2", RIGHT);
    let job = desk.0.next((Work::Computing, true)).expect("it waits");
    assert_eq!(desk.0.check(&job, (PATIENCE_MS + 1, 0), run), Checked::Not(Unchecked::Busy));
    assert_eq!(desk.sort(PATIENCE_MS + 1), [(2, Checked::Not(Unchecked::Busy))]);
}

/// Clients that cut their connections behind CONNECT cost no slow checks, and delay nobody.
#[test]
fn the_password_of_a_connection_that_is_gone_is_not_checked() {
    let desk = Desk::new();
    let gone = Wish::default();
    for slot in 1..=50 {
        let check = users().check("frog", b"wrong").into();
        desk.0.submit(&mut vec![job(slot, &format!("192.0.2.{slot}"), check, 0, &gone)]);
        assert_eq!(desk.sort(0), []);
    }
    assert_eq!(desk.submit(51, "192.0.2.51", RIGHT), []);
    drop(gone);
    assert_eq!(desk.next(), (51, Checked::Right));
    let check = users().check("frog", b"right").into();
    desk.0.submit(&mut vec![job(52, "192.0.2.52", check, 0, &Wish::default())]);
    assert_eq!(desk.sort(0), [], "nobody wants to know that it is right");
    let lines = &desk.0.lock().lines;
    assert!(lines.iter().all(Lines::is_empty));
}

/// Otherwise those of others would give way to them.
#[test]
fn the_passwords_of_connections_that_are_gone_leave_the_line() {
    let desk = Desk::new();
    let gone = Wish::default();
    desk.submit(0, "192.0.2.1", RIGHT);
    for slot in 1..=50 {
        let check = users().check("frog", b"wrong").into();
        desk.0.submit(&mut vec![job(slot, "192.0.2.1", check, 0, &gone)]);
        assert_eq!(desk.sort(0), []);
    }
    drop(gone);
    assert_eq!(desk.sort(LOOK_MS), [], "nobody waits for an answer");
    assert_eq!(desk.0.lock().lines[Work::Computing as usize].first.len(), 1);
}

#[test]
fn processes_of_one_user_of_this_machine_are_one_origin() {
    let desk = Desk::new();
    let submit = |slot, uid, password: &[u8]| {
        let peer = Peer::Process { uid: Some(uid), pid: Some(slot) };
        let connection = ConnectionId { slot, generation: 0 };
        let check = users().check("frog", password).into();
        desk.0.submit(&mut vec![Job::new(0, (ShardId::new(0), connection), &peer, check, &desk.1)]);
        desk.sort(0)
    };
    for slot in 0..30 {
        assert_eq!(submit(slot, 1_000, b"wrong"), []);
        assert_eq!(desk.next(), (slot, Checked::Wrong));
    }
    assert_eq!(submit(30, 1_000, b"wrong"), [(30, Checked::Not(Unchecked::Guessing))]);
    assert_eq!(submit(31, 1_001, b"wrong"), []);
}

/// A service that counts its questions.
#[derive(Debug, Default)]
struct Service {
    questions: AtomicUsize,
    is_down: AtomicBool,
}

impl Service {
    fn questions(&self) -> usize {
        self.questions.load(Ordering::Relaxed)
    }
}

impl UserService for Service {
    fn ask(&self, question: &Question<'_>) -> Verdict {
        self.questions.fetch_add(1, Ordering::Relaxed);
        if self.is_down.load(Ordering::Relaxed) {
            return Verdict::Unreachable;
        }
        match question.password {
            b"croak" => Verdict::Known { user: "newt".into(), until_unix_secs: None },
            b"later" => Verdict::Unreachable,
            _ => Verdict::Denied,
        }
    }
}

/// A check of a password by the service.
fn asked(service: &Arc<Service>, remembers_secs: u64, password: &[u8]) -> Check {
    let remembers = Duration::from_secs(remembers_secs);
    let settings = SourceSettings { place: "a", number: remembers_secs, remembers };
    let source = UserSource::new(Voucher::Http, settings, Arc::clone(service) as Arc<dyn UserService>);
    let access = Access::default().with_services(Arc::from([source]));
    let login =
        Login { user: Some("newt"), password: Some(password), client_id: "n1", may_be_anonymous: false };
    match access.admit(&login) {
        Admission::Verify(_, check) => check,
        other => panic!("{other:?}"),
    }
}

#[test]
fn questions_wait_in_lines_of_their_own() {
    let (desk, service) = (Desk::new(), Arc::default());
    for slot in 0..20 {
        assert_eq!(desk.submit_check(slot, "192.0.2.1", asked(&service, 0, b"croak"), 0), []);
    }
    // Nobody has asked the service yet.
    assert_eq!(desk.submit(20, "192.0.2.2", RIGHT), []);
    assert_eq!(desk.next(), (20, Checked::Right));
    assert!(
        desk.0.lock().lines[Work::Computing as usize].is_empty()
            && !desk.0.lock().lines[Work::Asking as usize].is_empty()
    );
    assert!(matches!(desk.ask_next(0), (0, Checked::Bearer(_))));
    // Those that have waited too long are refused without a question.
    let answers = desk.sort(PATIENCE_MS + 1);
    assert_eq!(answers.len(), 19);
    assert!(answers.iter().all(|(_, checked)| *checked == Checked::Not(Unchecked::Busy)));
    assert_eq!(service.questions(), 1);
}

#[test]
fn an_answer_that_lets_a_client_in_is_remembered_for_its_time() {
    let (desk, service) = (Desk::new(), Arc::default());
    let check = |password| asked(&service, 10, password);
    assert_eq!(desk.submit_check(1, "192.0.2.1", check(b"croak"), 0), []);
    assert!(matches!(desk.ask_next(0), (1, Checked::Bearer(_))));
    let again = desk.submit_check(2, "192.0.2.2", check(b"croak"), 9_999);
    assert!(matches!(&again[..], [(2, Checked::Bearer(bearer))] if &*bearer.user == "newt"), "{again:?}");
    assert_eq!(desk.submit_check(3, "192.0.2.3", check(b"croak"), 10_000), [], "the time is over");
    assert!(matches!(desk.ask_next(10_000), (3, Checked::Bearer(_))));
    // Other answers are asked for again.
    for (slot, password, expected) in [
        (4, &b"hop"[..], Checked::Wrong),
        (5, b"hop", Checked::Wrong),
        (6, b"later", Checked::Not(Unchecked::Unreachable)),
        (7, b"later", Checked::Not(Unchecked::Unreachable)),
    ] {
        let address = format!("192.0.2.{slot}");
        assert_eq!(desk.submit_check(slot, &address, check(password), 10_000), []);
        assert_eq!(desk.ask_next(10_000), (slot, expected));
    }
    assert_eq!(service.questions(), 6);
}

#[test]
fn wrong_passwords_at_a_service_count_as_guesses() {
    let (desk, service) = (Desk::new(), Arc::default());
    for slot in 0..30 {
        assert_eq!(desk.submit_check(slot, "192.0.2.1", asked(&service, 0, b"hop"), 0), []);
        assert_eq!(desk.ask_next(0), (slot, Checked::Wrong));
    }
    let refused = [(30, Checked::Not(Unchecked::Guessing))];
    assert_eq!(desk.submit_check(30, "192.0.2.1", asked(&service, 0, b"croak"), 0), refused);
    assert_eq!(service.questions(), 30);
    // A service that does not answer makes nobody suspect.
    for slot in 0..40 {
        desk.submit_check(slot, "192.0.2.2", asked(&service, 0, b"later"), 0);
        assert_eq!(desk.ask_next(0), (slot, Checked::Not(Unchecked::Unreachable)));
    }
    assert_eq!(desk.submit_check(40, "192.0.2.2", asked(&service, 0, b"croak"), 0), []);
    assert!(matches!(desk.ask_next(0), (40, Checked::Bearer(_))));
}

/// A service that does not answer makes no address suspect.
#[test]
fn remembered_answers_of_a_service_that_is_down_cannot_be_guessed_without_a_limit() {
    let (desk, service) = (Desk::new(), Arc::<Service>::default());
    let check = |password| asked(&service, 600, password);
    desk.submit_check(0, "192.0.2.1", check(b"croak"), 0);
    assert!(matches!(desk.ask_next(0), (0, Checked::Bearer(_))));
    service.is_down.store(true, Ordering::Relaxed);
    for slot in 1..=100 {
        assert_eq!(desk.submit_check(slot, "192.0.2.2", check(b"hop"), 0), []);
        assert_eq!(desk.ask_next(0), (slot, Checked::Not(Unchecked::Unreachable)));
    }
    assert_eq!(desk.submit_check(101, "192.0.2.2", check(b"croak"), 0), []);
    assert_eq!(desk.ask_next(0), (101, Checked::Not(Unchecked::Unreachable)), "it could be a guess");
    let lets_in = |answers: &[(u32, Checked)]| matches!(answers, [(_, Checked::Bearer(_))]);
    assert!(lets_in(&desk.submit_check(102, "192.0.2.1", check(b"croak"), 0)), "another address");
    assert!(lets_in(&desk.submit_check(103, "192.0.2.2", check(b"croak"), 200)), "one look is back");
}

/// All numbers are those of users.
#[derive(Debug)]
struct Everybody;

impl LoginNames for Everybody {
    fn of(&self, uid: u32) -> Result<Option<String>, NoLoginNames> {
        Ok(Some(format!("user {uid}")))
    }
}

#[test]
fn login_names_wait_for_no_other_question_and_are_no_guesses() {
    let (desk, service) = (Desk::new(), Arc::default());
    let access = Access::default().with_login_names(Some(Arc::new(Everybody)));
    assert_eq!(desk.submit_check(1, "192.0.2.1", asked(&service, 0, b"hop"), 0), []);
    let origin = Origin::from(std::net::IpAddr::from([192, 0, 2, 1]));
    for user in 0..400 {
        desk.0.lock().was_wrong(origin, user, 0);
    }
    let refused = [(2, Checked::Not(Unchecked::Guessing))];
    assert_eq!(desk.submit_check(2, "192.0.2.1", asked(&service, 0, b"croak"), 0), refused);
    let (_, check) = access.admit_process(7).expect("processes have names");
    assert_eq!(desk.submit_check(40, "192.0.2.1", check, 0), []);
    assert!(matches!(desk.take(Work::Naming, 0), (40, Checked::Bearer(bearer)) if &*bearer.user == "user 7"));
}
