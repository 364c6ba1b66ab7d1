//! A load balancer, or none, with the replicas behind it.

use std::net::SocketAddr;

use super::super::Setting;
use super::super::peer::{Contestant, Peer, Recipe, Running};
use super::front::{Front, Serving};
use super::{DIRECT, Row};
use crate::error::{Error, Result};
use crate::layers::Over;
use crate::measure::Target;
use crate::process::Processes;

/// Replicas of a server, and the balancer in front of them.
pub(super) struct Lineup {
    name: String,
    peer: Peer,
    front: Option<Front>,
    replicas: u32,
}

impl Lineup {
    pub(super) fn new(peer: Peer, front: Option<Front>, replicas: u32) -> Self {
        let balancer = front.as_ref().map_or(DIRECT, Front::name);
        Self { name: format!("{balancer} × {replicas}"), peer, front, replicas }
    }

    /// Its row in tables.
    pub(super) fn row(&self) -> Row {
        let balancer = self.front.as_ref().map_or(DIRECT, Front::name).to_owned();
        Row { name: self.name.clone(), balancer, replicas: self.replicas }
    }

    /// The recipe of a replica.
    fn recipe<'a>(&'a self, setting: &'a Setting, over: Over) -> Result<Recipe<'a>> {
        if !self.front.as_ref().is_some_and(Front::has_proxy) {
            return self.peer.recipe(setting, over);
        }
        let recipe = self.peer.proxied_recipe(setting)?;
        recipe.ok_or_else(|| Error::Server("has no recipe for the PROXY protocol".to_owned()))
    }
}

impl Contestant for Lineup {
    fn name(&self) -> &str {
        &self.name
    }

    fn peer(&self) -> &Peer {
        &self.peer
    }

    /// Replicas start one after the other, and then the balancer.
    fn start(&self, setting: &Setting, over: Over) -> Result<Running> {
        let (mut members, mut servers) = (Vec::new(), Processes::default());
        let mut addresses: Vec<SocketAddr> = Vec::new();
        for number in 1..=self.replicas {
            let role = format!("replica {number}");
            let replica = self.recipe(setting, over)?;
            let replica = replica.start(setting.server_cpus.as_ref(), &setting.interrupt);
            let replica = replica.map_err(|error| error.of(&role))?;
            let target = Running::adopt(&mut members, replica, &role);
            addresses.push(target.address);
            servers.add(target.servers);
        }
        let Some(front) = &self.front else {
            let further = addresses.split_off(1);
            let target = Target { further, servers, ..Target::at(addresses[0]) };
            return Ok(Running::new(target, members));
        };
        let Serving { address, group, member, ending } = front.start(setting, &addresses)?;
        members.extend(member);
        let target = Target { servers, balancer: group, ..Target::at(address) };
        Ok(Running::new(target, members).ended_by(ending))
    }
}
