//! The listeners of a broker that reloads. The first shard accepts, hands connections out, and carries out orders.

use std::collections::VecDeque;
use std::sync::Arc;

use base::ShardId;
use broker::{Admission, Entry};
use stream::Peer;
use turn::{Accepted, Board};

use super::outside::Socket;
use crate::configuration::Rules;
use crate::oracle::Arrival;
use crate::random::Random;
use crate::scene::Scene;
use crate::trace::note;

/// An order of the thread that reloads to the first shard.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Order {
    /// Accepts connections at an address.
    Open { address: usize, number: u16, rules: Rules },
    /// Accepts under another number, by other rules.
    Change { address: usize, next: u16, rules: Rules },
    /// The listener accepts no more connections.
    Close { address: usize },
}

/// Sockets that listen, by address, and orders that were not carried out.
pub(super) struct Doors {
    open: Vec<Option<(u16, Rules)>>,
    pub(super) orders: VecDeque<Order>,
    board: Arc<Board>,
}

impl Doors {
    pub(super) fn new(addresses: usize, board: Arc<Board>) -> Self {
        Self { open: vec![None; addresses], orders: VecDeque::new(), board }
    }

    /// Carries out all orders.
    pub(super) fn obey(&mut self, scene: &mut Scene) {
        while let Some(order) = self.orders.pop_front() {
            note!(scene.trace, ("shard 0"), "obeys {order:?}");
            match order {
                Order::Open { address, number, rules } => {
                    self.open[address] = Some((number, rules));
                    scene.network.open_door(address);
                }
                Order::Change { address, next, rules } => self.open[address] = Some((next, rules)),
                Order::Close { address } => {
                    self.open[address] = None;
                    scene.network.close_door(address);
                }
            }
        }
    }

    /// Accepts some of the waiting connections, with the shards that get them.
    pub(super) fn accept(
        &mut self,
        scene: &mut Scene,
        random: &mut Random,
    ) -> Vec<(ShardId, Accepted<Socket>)> {
        let mut accepted = Vec::new();
        for (address, open) in self.open.iter().enumerate() {
            let Some((number, rules)) = *open else { continue };
            for _ in 0..random.some_of(scene.network.knocking_at(address)) {
                let Some((link, shard)) = scene.network.take_knocking_at(address) else { break };
                let client = scene.network.client_of(link);
                let Rules { durability, allow_anonymous, .. } = rules;
                scene.oracle.arrived(
                    link,
                    Arrival { number, shard, is_proved: crate::client::has_user(client), allow_anonymous },
                );
                let stream = Socket::new(link, &scene.network, Random::new(random.next()));
                let shard = ShardId::new(shard);
                self.board.charge(shard);
                self.board.charge_listener(number);
                let entry = Entry { allow_anonymous, ..Entry::default() };
                let counted_as = u16::try_from(address).expect("there are few addresses");
                let admission = Admission { entry, counted_as, ..durability.into() };
                let peer = Peer::Simulated(link.0);
                accepted.push((shard, Accepted { stream, peer, admission, listener: number }));
            }
        }
        accepted
    }
}
