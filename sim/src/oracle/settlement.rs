//! Conditions that must be true when everything works and nothing is in flight any more.

use wire::{Qos, RetainHandling};

use super::sessions::{Session, Span};
use super::{Message, MessageNo, Oracle, SessionNo, Tick};
use crate::network::LinkId;

/// A client at the end of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Standing {
    pub(crate) session: Option<SessionNo>,
    pub(crate) link: Option<LinkId>,
}

/// A copy that never came, although its message was acknowledged.
#[derive(Debug, Clone, Copy)]
pub(super) struct Missed {
    /// A client that should have got it.
    pub(super) client: usize,
    pub(super) no: MessageNo,
    /// The number of the filter of a group, if one of its members should have got it.
    pub(super) group: Option<usize>,
}

impl Oracle {
    /// Checks that all promises were kept. `dropped` is the number of copies that did not arrive because they had
    /// expired, because their reader was slow, or because the process was full.
    pub(crate) fn settle(&mut self, standings: &[Standing], dropped: u64) {
        let alive: Vec<SessionNo> = standings.iter().filter_map(|standing| standing.session).collect();
        let mut missed = Vec::new();
        for number in 0..self.messages.len() {
            let no = MessageNo(u32::try_from(number).expect("a run is short"));
            if let Err(finding) = self.settle_message(no, &alive, standings, dropped, &mut missed) {
                return self.fail(finding);
            }
        }
        let dropped = self.dropped_before + self.dropped_by_queue();
        let discarded = self.discarded_by_operator();
        if let Err(finding) = self.settle_moves(&mut missed, &alive, dropped) {
            return self.fail(finding);
        }
        let unexplained: Vec<&Missed> = missed.iter().filter(|missed| !self.is_discarded(missed)).collect();
        if unexplained.len() > dropped || missed.len() > dropped + discarded {
            let Missed { client, no, .. } = **unexplained.first().unwrap_or(&&missed[0]);
            let (all, others, name) = (missed.len(), unexplained.len(), self.name(no));
            self.fail(format!(
                "c{client} never gets {name}, which was acknowledged; {all} such copies, and no order of an operator means {others} of them; {dropped} dropped by full queues, {discarded} by operators"
            ));
        }
    }

    /// Checks that moved copies have come to somebody, once. Copies that are missing because they were moved are no more missed.
    fn settle_moves(
        &self,
        missed: &mut Vec<Missed>,
        alive: &[SessionNo],
        dropped: usize,
    ) -> Result<(), String> {
        let moved: Vec<Missed> = missed.extract_if(.., |missed| self.is_moved(missed)).collect();
        let moved: Vec<&Missed> = moved.iter().collect();
        let lost = self.lost_in_moves(&moved, alive);
        if lost > dropped {
            let name = self.name(moved[0].no);
            return Err(format!("{lost} copies that were moved, such as {name}, have come to nobody"));
        }
        self.check_moved_once()
    }

    /// The number of queues that have got a message that was due in them.
    pub(super) fn received_where_due(&self, no: MessageNo, alive: &[SessionNo]) -> usize {
        let message = self.message(no);
        let Some(accepted) = message.accepted() else { return 0 };
        let has_received = |session: &&Session| {
            session.spans.iter().any(|span| self.is_owed(span, session, message, accepted))
                && session.receipts_of(no) > 0
        };
        alive.iter().map(|session| &self.sessions[session.0]).filter(has_received).count()
    }

    /// Whether a subscription that is not shared must have got a message of QoS 1 or 2.
    fn is_owed(
        &self,
        span: &Span,
        session: &Session,
        message: &Message,
        (published, acknowledged): (Tick, Tick),
    ) -> bool {
        self.leads_to(span, session, message)
            && span.wish.qos > Qos::AtMostOnce
            && span.surely_covers(published, acknowledged)
            // When one subscription ends and another one begins, what is retained may come for the new one only.
            // Nobody knows when a will was published after its client had gone.
            && !((message.retain || message.will.is_some()) && span.end_asked.is_some())
    }

    /// Messages that need no disk arrive without one: those for sessions that end with their connections.
    pub(crate) fn settle_flowing(&mut self, standings: &[Standing], dropped: u64) {
        let is_clean = |session: &SessionNo| !self.sessions[session.0].lasts;
        let alive: Vec<SessionNo> =
            standings.iter().filter_map(|standing| standing.session).filter(is_clean).collect();
        for number in 0..self.messages.len() {
            let no = MessageNo(u32::try_from(number).expect("a run is short"));
            if self.message(no).will.is_some() {
                // It waits until it can be recorded for sessions that are away.
                continue;
            }
            // A message that a group owes may be owed by a member that needs the disk.
            if let Err(finding) = self.settle_message(no, &alive, standings, dropped, &mut Vec::new()) {
                return self.fail(format!("without a disk {finding}"));
            }
        }
    }

    fn settle_message(
        &self,
        no: MessageNo,
        alive: &[SessionNo],
        standings: &[Standing],
        dropped: u64,
        missed: &mut Vec<Missed>,
    ) -> Result<(), String> {
        let message = self.message(no);
        if message.is_empty || message.expires {
            return Ok(());
        }
        if message.qos == Qos::AtMostOnce {
            return self.settle_once(no, alive, standings, dropped);
        }
        let Some(accepted) = message.accepted() else { return Ok(()) };
        for session in alive.iter().map(|session| &self.sessions[session.0]) {
            if session.spans.iter().any(|span| self.is_owed(span, session, message, accepted))
                && session.takes(message)
                && session.receipts_of(no) == 0
            {
                match session.lasts {
                    true => missed.push(Missed { client: session.client, no, group: None }),
                    false => {
                        return Err(format!(
                            "c{} never gets {}, which was acknowledged while it was connected",
                            session.client,
                            self.name(no)
                        ));
                    }
                }
            }
        }
        self.settle_groups(no, alive, missed);
        Ok(())
    }

    /// QoS 0 promises little: that it arrives as long as nobody is slow, nothing was dropped, and both stay connected.
    fn settle_once(
        &self,
        no: MessageNo,
        alive: &[SessionNo],
        standings: &[Standing],
        dropped: u64,
    ) -> Result<(), String> {
        let message = self.message(no);
        let is_connected = |link: LinkId| standings.iter().any(|standing| standing.link == Some(link));
        // A subscription that has just begun gets what is retained from its cursor and not live; until the client has room
        // for that, another value may have taken its place.
        let others = self.messages.iter().enumerate().filter(|(other, _)| *other != no.0 as usize);
        let is_superseded =
            message.retain && others.map(|(_, other)| other).any(|other| other.may_replace(message));
        if dropped > 0 || is_superseded || message.will.is_some() || !message.link.is_some_and(is_connected) {
            return Ok(());
        }
        for session in alive.iter().map(|session| &self.sessions[session.0]).filter(|session| !session.lasts)
        {
            let is_owed = |span: &&Span| {
                self.leads_to(span, session, message) && span.surely_covers(message.published, self.tick)
            };
            if session.spans.iter().any(|span| is_owed(&span))
                && session.takes(message)
                && session.receipts_of(no) == 0
            {
                return Err(format!(
                    "c{} never gets {}, and nothing was dropped",
                    session.client,
                    self.name(no)
                ));
            }
        }
        Ok(())
    }

    /// Whether a subscription that is not shared asks for a message.
    pub(super) fn leads_to(&self, span: &Span, session: &Session, message: &Message) -> bool {
        !span.is_shared
            && self.matches[span.wish.filter][message.topic]
            && !(span.wish.no_local && session.client == message.publisher)
    }

    /// A group owes each message to one of its members, as long as it has members.
    fn settle_groups(&self, no: MessageNo, alive: &[SessionNo], missed: &mut Vec<Missed>) {
        let message = self.message(no);
        for filter in (0..self.filters.len()).filter(|filter| self.is_shared[*filter]) {
            if !self.matches[filter][message.topic] {
                continue;
            }
            let of_group = |span: &&Span| span.wish.filter == filter;
            let members =
                || self.sessions.iter().filter(move |session| session.spans.iter().any(|s| of_group(&s)));
            let stays = |session: &&SessionNo| {
                let session = &self.sessions[session.0];
                let covers = |span: &Span| span.surely_covers(message.published, self.tick);
                session.spans.iter().filter(of_group).any(covers)
            };
            // A message that one of them was given, or may have been, ended with it. One that was granted QoS 0, or
            // takes small packets only, may have been given it and not have it.
            let is_lossy = |session: &Session| {
                session.may_have_ended_with(message.published)
                    || !session.takes(message)
                    || session.spans.iter().filter(of_group).any(|span| span.wish.qos == Qos::AtMostOnce)
            };
            let Some(stays) = alive.iter().find(stays) else { continue };
            if !members().any(is_lossy) && members().all(|session| session.receipts_of(no) == 0) {
                let client = self.sessions[stays.0].client;
                missed.push(Missed { client, no, group: Some(filter) });
            }
        }
    }

    /// Everybody agrees on the retained value of each topic. `audits` have just subscribed to all of them.
    pub(crate) fn settle_retained(
        &mut self,
        standings: &[Standing],
        audits: &[SessionNo],
        dropped: u64,
        is_after_restart: bool,
    ) {
        for topic in 0..self.topics.len() {
            let value = |session: &SessionNo| {
                self.sessions[session.0].values.get(&topic).and_then(|value| value.message)
            };
            let Some(winner) = audits.first().map(value) else { return };
            let finding = if audits.iter().any(|audit| value(audit) != winner) {
                let values: Vec<String> =
                    audits.iter().map(|audit| format!("{:?}", value(audit).map(|no| no.0))).collect();
                Err(format!(
                    "new subscribers get different values of {}: {}",
                    self.topics[topic],
                    values.join(", ")
                ))
            } else {
                self.settle_winner(topic, winner, is_after_restart)
                    .and_then(|()| self.settle_values(topic, winner, standings, dropped))
            };
            if let Err(finding) = finding {
                return self.fail(finding);
            }
        }
    }

    /// No message that was acknowledged may have been set, or cleared, entirely after the winner.
    fn settle_winner(
        &self,
        topic: usize,
        winner: Option<MessageNo>,
        after_restart: bool,
    ) -> Result<(), String> {
        let retained = || self.messages.iter().zip(0..).filter(|(m, _)| m.topic == topic && m.retain);
        // Expired values are no values, and what the broker was never asked to acknowledge may be lost in a crash. When
        // a will was published nobody can tell.
        if retained().any(|(message, _)| message.expires || message.will.is_some()) {
            return Ok(());
        }
        let ends = match winner {
            Some(no) => {
                let Some((_, acknowledged)) = self.message(no).accepted() else { return Ok(()) };
                acknowledged
            }
            None if retained().any(|(message, _)| message.is_empty) => return Ok(()),
            // A value of QoS 0 that there is no memory for clears its topic, because what there was is out of date.
            None if self.not_retained() > 0
                && retained().any(|(message, _)| message.qos == Qos::AtMostOnce) =>
            {
                return Ok(());
            }
            None => 0,
        };
        let later = retained().find(|(message, _)| {
            message.qos > Qos::AtMostOnce && message.accepted().is_some_and(|(published, _)| published > ends)
        });
        match later {
            Some((_, later)) => Err(format!(
                "the retained value of {} is {}, although {} came later and was acknowledged{}",
                self.topics[topic],
                winner.map_or("nothing".to_owned(), |no| self.name(no)),
                self.name(MessageNo(later)),
                if after_restart { " (after a restart)" } else { "" }
            )),
            None => Ok(()),
        }
    }

    /// A client that was subscribed all the time has seen the winner last, if there was room for it.
    fn settle_values(
        &self,
        topic: usize,
        winner: Option<MessageNo>,
        standings: &[Standing],
        dropped: u64,
    ) -> Result<(), String> {
        let all_retained = self.messages.iter().filter(|m| m.topic == topic);
        let is_plain = |m: &Message| m.retain && !m.expires && m.will.is_none();
        let drops = self.dropped_before
            + self.dropped_by_queue()
            + self.discarded_by_operator()
            + self.not_retained();
        let has_moved = !self.moves.is_empty();
        if drops > 0 || dropped > 0 || has_moved || !all_retained.into_iter().all(is_plain) {
            return Ok(());
        }
        // Messages of QoS 0 do not wait for a session that is away.
        let may_be_missed = self.messages.iter().any(|m| m.topic == topic && m.qos == Qos::AtMostOnce);
        let alive = standings.iter().filter_map(|standing| standing.session);
        for session in alive.map(|session| &self.sessions[session.0]) {
            if session.lasts && may_be_missed {
                continue;
            }
            let brings = |span: &Span| {
                self.matches[span.wish.filter][topic]
                    && !span.is_shared
                    && !span.wish.no_local
                    && span.surely_covers(self.tick, self.tick)
                    && span.wish.retain_handling == RetainHandling::Send
                    && (span.wish.qos > Qos::AtMostOnce || !session.lasts)
            };
            let is_only =
                session.spans.iter().filter(|span| self.matches[span.wish.filter][topic]).count() == 1;
            if !is_only || !session.spans.iter().any(brings) || session.packet_bytes_max < usize::MAX {
                continue;
            }
            let value = session.values.get(&topic);
            if value.is_some_and(|value| value.qos.is_none()) {
                continue;
            }
            let last = value.and_then(|value| value.message);
            if last != winner {
                let name = |no: Option<MessageNo>| no.map_or("nothing".to_owned(), |no| self.name(no));
                return Err(format!(
                    "c{} has seen {} last on {}, and what is retained is {}",
                    session.client,
                    name(last),
                    self.topics[topic],
                    name(winner)
                ));
            }
        }
        Ok(())
    }
}

impl Session {
    /// Whether its client takes packets of that size.
    pub(super) fn takes(&self, message: &Message) -> bool {
        const AROUND_BYTES: usize = 95;
        message.bytes + AROUND_BYTES <= self.packet_bytes_max
    }
}
