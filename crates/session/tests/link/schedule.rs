//! One schedule: what happens, in which order, from a seed.

use pondhawk_session::client::Acknowledge;
use wire::{Qos, Version};

use crate::client::ClientEnd;
use crate::random::Random;
use crate::server::ServerEnd;

const STEPS: usize = 80;
/// The longest that everything may take to arrive once nothing goes wrong any more.
const ROUNDS_MAX: usize = 500;

struct Schedule {
    random: Random,
    client: ClientEnd,
    server: ServerEnd,
    is_linked: bool,
    to_server: Vec<u8>,
    to_client: Vec<u8>,
}

pub(crate) fn run(seed: u64) {
    let mut random = Random::new(seed);
    let version = random.pick(&Version::ALL);
    let acknowledge = random.pick(&[Acknowledge::AtOnce, Acknowledge::ByApplication]);
    let mut schedule = Schedule {
        client: ClientEnd::new(version, acknowledge, &mut random),
        server: ServerEnd::new(&mut random),
        random,
        is_linked: false,
        to_server: Vec::new(),
        to_client: Vec::new(),
    };
    for _ in 0..STEPS {
        schedule.step();
    }
    schedule.settle();
}

impl Schedule {
    fn step(&mut self) {
        let qos = self.random.pick(&[Qos::AtLeastOnce, Qos::ExactlyOnce]);
        match self.random.below(40) {
            0..4 => self.client.publish(qos),
            4..8 => self.server.publish(qos),
            8..15 => self.deliver_to_server(),
            15..22 => self.deliver_to_client(),
            22..28 => self.sync_client(),
            28..34 => self.sync_server(),
            34..37 => self.client.accept_one(),
            37 if self.random.one_in(3) => {
                self.cut();
                self.client.crash();
            }
            38 if self.random.one_in(3) => {
                self.cut();
                self.server.crash();
            }
            39 if self.random.one_in(2) => self.cut(),
            _ => self.link(),
        }
    }

    fn link(&mut self) {
        if !self.is_linked {
            self.is_linked = true;
            self.client.connect();
            self.server.accept();
        }
    }

    /// Bytes on their way arrive up to some byte, and no further.
    fn cut(&mut self) {
        if self.is_linked {
            self.deliver_to_server();
            self.deliver_to_client();
            self.to_server.clear();
            self.to_client.clear();
            self.is_linked = false;
            self.client.cut();
            self.server.cut();
        }
    }

    fn deliver_to_server(&mut self) {
        let len = self.random.below(self.to_server.len() + 1);
        self.server.receive(&self.to_server[..len]);
        self.to_server.drain(..len);
    }

    fn deliver_to_client(&mut self) {
        let len = self.random.below(self.to_client.len() + 1);
        self.client.receive(&self.to_client[..len]);
        self.to_client.drain(..len);
    }

    fn sync_client(&mut self) {
        let bytes = self.client.sync();
        if self.is_linked {
            self.to_server.extend_from_slice(&bytes);
        }
    }

    fn sync_server(&mut self) {
        let bytes = self.server.sync(&mut self.random);
        if self.is_linked {
            self.to_client.extend_from_slice(&bytes);
        }
    }

    /// Nothing goes wrong any more: everything arrives.
    fn settle(&mut self) {
        let mut rounds = 0;
        self.link();
        while !(self.client.is_idle() && self.server.is_idle()) {
            assert!(rounds < ROUNDS_MAX, "it does not come to rest");
            rounds += 1;
            self.sync_client();
            let to_server = std::mem::take(&mut self.to_server);
            self.server.receive(&to_server);
            self.sync_server();
            let to_client = std::mem::take(&mut self.to_client);
            self.client.receive(&to_client);
            self.client.accept_one();
        }
        let client = self.client.finish().clone();
        client.assert_complete(self.server.finish());
        self.server.finish().assert_complete(&client);
    }
}
