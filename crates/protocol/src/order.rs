//! The rules of order between threads, numbered. Code that keeps a rule names its number.
//!
//! A test of `tests/architecture` checks that each file below names the rule and that each test exists. Each of these files was
//! changed on purpose so that it breaks its rule, and a test of the rule failed. Each test failed for at least one of these
//! changes.
//!
//! # Rule 1: an inbox keeps its order
//! Letters of one sender are handled in the order in which they were posted. Replies in one letter keep their order too.
//!
//! Kept in `crates/net/src/inbox.rs`, `crates/turn/src/pile.rs`.
//! Shown by `letters_from_many_threads_arrive_once_and_in_the_order_of_each_sender`,
//! `letters_keep_their_order_around_answers`, `a_shard_that_sleeps_has_no_letters_in_many_schedules`.
//!
//! # Rule 2: the wake-up follows the letter
//! A letter lies in the inbox before the reader is woken. The reader clears the mark of the wake-up before it takes the
//! letters. So a reader that sleeps has no letters.
//!
//! Kept in `crates/net/src/inbox.rs`.
//! Shown by `a_reader_that_sleeps_has_no_letters`, `a_ledger_that_sleeps_has_no_letters_in_many_schedules`,
//! `a_shard_that_sleeps_has_no_letters_in_many_schedules`.
//!
//! # Rule 3: mail goes before commands
//! A shard posts the mail of a turn to the other shards before it posts its commands to the ledger. So the reply to a
//! command reaches no shard before the mail that was sent before the command.
//!
//! Kept in `crates/turn/src/post.rs`.
//! Shown by `the_mail_of_a_turn_is_posted_before_its_commands`.
//!
//! # Rule 4: every `Live` goes before its `Decided`
//! Each inbox has the copies of a message ([`Reply::Live`](crate::Reply::Live)) before any inbox has the
//! [`Reply::Decided`](crate::Reply::Decided) of its publisher. The publisher's shard then sends later messages straight
//! to other shards, and these cannot overtake the copies.
//!
//! Kept in `crates/turn/src/replies.rs`.
//! Shown by `no_shard_hears_that_a_message_is_decided_before_all_have_the_message`.
//!
//! # Rule 5: every `Live` goes before a later `Claimed`
//! A client that comes back on another shard publishes there. All inboxes have the copies of its earlier messages before
//! the new shard has [`Reply::Claimed`](crate::Reply::Claimed). The ledger's replies are posted in rounds for that.
//!
//! Kept in `crates/turn/src/replies.rs`.
//! Shown by `no_client_is_let_in_before_all_shards_have_what_was_published_before`.
//!
//! # Rule 6: nothing passes a message that is undecided
//! While the ledger has a message of a publisher to decide, the shard posts the publisher's later messages to the same
//! topic as commands too.
//!
//! Kept in `crates/broker/src/publish.rs`, `crates/broker/src/shard.rs`.
//! Shown by `a_retained_message_and_the_next_one_without_the_flag_keep_their_order`,
//! `a_message_with_a_new_route_does_not_pass_the_one_before_that_is_undecided`.
//!
//! # Rule 7: `Left` is the last command of a connection
//! The changes of subscriptions that a client has asked for are posted before [`Command::Left`](crate::Command::Left).
//! The ledger ignores later commands of the connection.
//!
//! Kept in `crates/broker/src/ending.rs`, `crates/ledger/src/lines.rs`.
//! Shown by `an_unsubscribe_before_the_end_is_carried_out`, `commands_from_a_connection_that_has_left_are_ignored`.
//!
//! # Rule 8: one connection at a time has a client identifier
//! The ledger posts [`Reply::Claimed`](crate::Reply::Claimed) to a newcomer when the earlier holder's
//! [`Command::Left`](crate::Command::Left) has come, and not before.
//!
//! Kept in `crates/ledger/src/connections.rs`, `crates/ledger/src/sessions/claims.rs`.
//! Shown by `an_identifier_is_taken_over_across_shards_with_what_the_old_connection_had`,
//! `an_identifier_has_one_holder_and_the_newest_claimant_follows`.
//!
//! # Rule 9: an evicted client is read first
//! A shard that is told to evict a client reads all bytes that have arrived from it, if the client has closed its
//! direction. A DISCONNECT among them counts.
//!
//! Kept in `crates/turn/src/shard.rs`.
//! Shown by `the_disconnect_of_an_evicted_client_counts_although_others_leave_before_it`,
//! `a_client_that_is_taken_over_is_heard_to_the_end`.
//!
//! # Rule 10: announce, then look again
//! A sender that finds too much under way announces that it waits, and looks again before it waits. The receiver first
//! makes room, and then looks who waits. So no sender waits for room that is there.
//!
//! Kept in `crates/turn/src/way.rs`, `crates/base/src/gauge.rs`.
//! Shown by `a_sender_that_has_to_wait_is_told_however_both_threads_run`,
//! `a_publisher_that_has_to_wait_is_told_however_both_threads_run`, `a_sender_that_has_to_wait_is_told_in_any_schedule`,
//! `a_publisher_that_has_to_wait_is_told_in_any_schedule`, `a_publisher_that_waits_for_a_window_is_told_in_any_schedule`.
//!
//! # Rule 11: a promise follows its record
//! A reply that promises something ([`Reply::Stored`](crate::Reply::Stored), [`Reply::Recorded`](crate::Reply::Recorded),
//! [`Reply::Claimed`](crate::Reply::Claimed)) is posted when its record is as safe as the connection's
//! [`Durability`](crate::Durability) says. Replies of one kind to one connection keep their order.
//!
//! Kept in `crates/ledger/src/replies.rs`, `crates/ledger/src/connections.rs`, `crates/ledger/src/sessions/subscribe.rs`.
//! Shown by `each_connection_waits_for_what_its_listener_asks_for`, `a_hasty_connection_keeps_the_order_of_its_answers`,
//! `answers_keep_their_order`, `a_subscription_of_a_lasting_session_is_acknowledged_when_it_is_recorded`.
//!
//! # Rule 12: the generation goes before the look-up
//! A route carries the generation of the index that was read before the topic was looked up. A change raises the
//! generation inside the write lock under which it is made, and not before.
//!
//! Kept in `crates/broker/src/publish.rs`, `crates/index/src/lib.rs`.
//! Shown by `readers_see_whole_batches_and_never_an_outdated_route`,
//! `a_subscription_that_is_written_while_its_topic_is_looked_up_gets_the_next_message`.
//!
//! # Rule 13: no message of QoS 1 or 2 passes one that was refused without an answer
//! Before MQTT 5.0, no acknowledgement says no. A client that keeps its session sends a message that was not acknowledged
//! again after its next CONNECT, and with it all messages that it sent later. So behind a refused message of such a client,
//! the ledger refuses all messages of the connection that ask for an acknowledgement. It also calls no message of the
//! connection decided any more, so that the shard sends none straight.
//!
//! Kept in `crates/ledger/src/publishing/publish.rs`, `crates/broker/src/publish.rs`.
//! Shown by `what_comes_behind_a_refused_message_is_refused_if_its_publisher_cannot_be_told`,
//! `what_comes_behind_a_refused_message_is_not_delivered_before_it_comes_again`.
