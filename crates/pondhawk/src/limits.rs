//! Limits of the server, from the configuration.

use std::sync::Arc;

use base::{Dispatch, Key};
use config::{Config, Limits, Sessions, Shared, SharedKey};
use ledger::QueueFull;
use net::{NewLimits, Options};
use session::Settings;

use crate::listen;

/// The settings of a server, without users.
pub(crate) fn options(config: &Config) -> Options {
    let NewLimits { settings, ledger, limits, .. } = of(config);
    Options {
        shards: usize::from(config.shards),
        settings,
        limits,
        ledger,
        counted_users_max: usize::from(config.limits.counted_users),
        questions: usize::from(config.limits.user_questions),
        sys_interval_ms: config.sys.interval.map(millis),
        guard: Arc::default(),
        orders: None,
        instruments: Vec::new(),
        spans: None,
    }
}

/// The limits that a reload can change.
pub(crate) fn of(config: &Config) -> NewLimits {
    let limits = &config.limits;
    NewLimits {
        settings: settings(limits, &config.sessions),
        ledger: ledger(limits, &config.sessions, &config.shared),
        limits: net::Limits {
            connections_max: size(limits.connections),
            high_water_bytes: size(limits.output_buffer_bytes),
            waiting_bytes_max: size(limits.waiting_bytes),
            memory_bytes_max: size(limits.memory_budget_bytes),
        },
        durability: listen::durability_max(config),
    }
}

fn settings(limits: &Limits, sessions: &Sessions) -> Settings {
    Settings {
        authentication_methods: auth::Mechanism::NAMES.map(str::to_owned).to_vec(),
        packet_bytes_max: limits.packet_bytes,
        connect_packet_bytes_max: limits.connect_packet_bytes,
        connect_user_properties_max: size(limits.connect_user_properties),
        topic_levels_max: usize::from(limits.topic_levels),
        client_id_bytes_max: usize::from(limits.client_id_bytes),
        will_bytes_max: size(limits.will_bytes),
        subscriptions_max: size(limits.subscriptions_per_client),
        deep_shapes_max: size(limits.wildcard_shapes),
        deep_shapes_per_client_max: size(limits.wildcard_shapes_per_client),
        topic_alias_max: limits.topic_alias_maximum,
        topic_alias_out_max: limits.topic_alias_maximum_out,
        receive_max: sessions.receive_maximum,
        inflight_max: sessions.inflight_messages,
        inflight_max_3: sessions.inflight_messages_3,
        waiting_messages_max: size(sessions.queue_messages),
        waiting_bytes_max: size(sessions.queue_bytes),
        session_expiry_secs_max: sessions
            .expiry_max
            .map_or(u32::MAX, |longest| u32::try_from(longest.as_secs()).unwrap_or(u32::MAX)),
        check_payload_format: sessions.check_payload_format,
        keep_alive_secs_max: limits
            .keep_alive
            .map_or(0, |longest| u16::try_from(longest.as_secs()).unwrap_or(u16::MAX)),
        connect_timeout_ms: millis(limits.connect_timeout),
        ..Settings::default()
    }
}

fn ledger(limits: &Limits, sessions: &Sessions, shared: &Shared) -> ledger::Settings {
    ledger::Settings {
        retained_bytes_max: size(limits.retained_bytes),
        sessions_max: size(sessions.lasting_max),
        queue_messages_max: size(sessions.queue_messages),
        queue_bytes_max: size(sessions.queue_bytes),
        queued_bytes_in_memory: size(limits.queued_bytes_in_memory),
        shared_subscriptions_max: size(limits.shared_subscriptions_per_client),
        groups_per_filter_max: size(limits.groups_per_filter),
        queue_full: match sessions.queue_full {
            config::QueueFull::EndSession => QueueFull::EndSession,
            config::QueueFull::Refuse => QueueFull::Refuse,
            config::QueueFull::DropOldest => QueueFull::DropOldest,
            config::QueueFull::DropNewest => QueueFull::DropNewest,
        },
        dispatch: match (shared.dispatch, &shared.key) {
            (config::Dispatch::RoundRobin, _) => Dispatch::RoundRobin,
            (config::Dispatch::KeyOrdered, SharedKey::Publisher) => Dispatch::KeyOrdered(Key::Publisher),
            (config::Dispatch::KeyOrdered, SharedKey::Property(name)) => {
                Dispatch::KeyOrdered(Key::Property(name.as_str().into()))
            }
        },
        ..ledger::Settings::default()
    }
}

/// A number of the configuration as a length of memory.
pub(crate) fn size(number: impl TryInto<usize>) -> usize {
    number.try_into().unwrap_or(usize::MAX)
}

fn millis(duration: std::time::Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
