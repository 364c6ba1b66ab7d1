import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.message.subscribe.Mqtt5RetainHandling;
import com.hivemq.client.mqtt.mqtt5.message.subscribe.Mqtt5Subscription;
import java.nio.ByteBuffer;
import java.util.ArrayList;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.TimeUnit;
import java.util.stream.IntStream;

/**
 * What HiveMQ's clients can say to each other through a broker, and what waits for them when they come back, step by
 * step.
 *
 * <p>usage: Talk {3.1.1|5.0} {PORT {0|1|2}}...
 */
final class Talk {
    private static final int COUNT = 100;

    private final Client.Run run;

    private Talk(Client.Run run) {
        this.run = run;
    }

    public static void main(String[] arguments) {
        boolean is5 = arguments[0].equals("5.0");
        try {
            for (int at = 1; at < arguments.length; at += 2) {
                int port = Integer.parseInt(arguments[at]);
                MqttQos qos = MqttQos.fromCode(Integer.parseInt(arguments[at + 1]));
                System.out.println("port " + port + ", QoS " + qos.getCode());
                new Talk(new Client.Run(port, is5, qos)).carryOut();
            }
        } catch (Exception | AssertionError error) {
            error.printStackTrace();
            System.exit(1);
        }
        System.out.println("all said");
        System.exit(0);
    }

    private interface Step {
        void carryOut() throws Exception;
    }

    private static void step(String name, Step step) throws Exception {
        System.out.println(name);
        step.carryOut();
    }

    private void carryOut() throws Exception {
        step("the lower QoS counts", this::theLowerQosCounts);
        step("a message may be empty or large", this::aMessageMayBeEmptyOrLarge);
        step("many messages come in order", this::manyMessagesComeInOrder);
        step("a retained message waits for subscribers", this::aRetainedMessageWaitsForSubscribers);
        step("a will is published for who vanishes", this::aWillIsPublishedForWhoVanishes);
        step("an unsubscribed filter brings nothing more", this::anUnsubscribedFilterBringsNothingMore);
        step("a group shares its messages", this::aGroupSharesItsMessages);
        if (run.qos() != MqttQos.AT_MOST_ONCE) {
            step("a session hears what was said while it was away", this::aSessionHearsWhatWasSaidWhileItWasAway);
            step("a group keeps what its absent member did not take", this::aGroupKeepsWhatNobodyTook);
            step("lost connections lose and repeat nothing", this::lostConnectionsLoseAndRepeatNothing);
        }
        if (run.is5()) {
            step("subscription options are kept", this::subscriptionOptionsAreKept);
            step("properties arrive as they were sent", this::propertiesArriveAsTheyWereSent);
            step("a request is answered where it asks to be", this::aRequestIsAnsweredWhereItAsksToBe);
            step("a disconnect may end the session", this::aDisconnectMayEndTheSession);
        }
    }

    private Client connect(String clientId) throws Exception {
        return Client.connect(run, clientId, Client.Nature.PLAIN);
    }

    private Client connect(String clientId, Client.Nature nature) throws Exception {
        return Client.connect(run, clientId, nature);
    }

    private static void leave(Client... clients) throws Exception {
        for (Client client : clients) {
            client.leave();
        }
    }

    private static CompletableFuture<?> sayAll(Client client, String topic) {
        var said = IntStream.range(0, COUNT).mapToObj(number -> client.say(topic, "" + number));
        return CompletableFuture.allOf(said.toArray(CompletableFuture<?>[]::new));
    }

    /** These numbers, each once and in order. */
    private static void hearNumbers(Client client, int from, int to) throws Exception {
        for (int next = from; next < to; next++) {
            int number = Integer.parseInt(client.hear().payload());
            Client.check(number == next, number + ", expected " + next);
        }
    }

    private void theLowerQosCounts() throws Exception {
        Client frog = connect("frog");
        Client toad = connect("toad");
        for (MqttQos granted : MqttQos.values()) {
            frog.subscribe("deep", granted);
            for (MqttQos sent : MqttQos.values()) {
                toad.publish("deep", sent.toString(), sent, false);
                MqttQos lower = granted.getCode() < sent.getCode() ? granted : sent;
                frog.expect("deep", sent.toString(), lower, false);
            }
        }
        leave(frog, toad);
    }

    private void aMessageMayBeEmptyOrLarge() throws Exception {
        Client frog = connect("frog");
        frog.subscribe("size");
        for (String payload : List.of("", "x", "é".repeat(50_000), "x".repeat(1_000_000))) {
            frog.say("size", payload);
            frog.expect("size", payload);
        }
        leave(frog);
    }

    private void manyMessagesComeInOrder() throws Exception {
        Client frog = connect("frog");
        Client toad = connect("toad");
        frog.subscribe("count/+");
        Client.soon(sayAll(toad, "count/all"));
        hearNumbers(frog, 0, COUNT);
        leave(frog, toad);
    }

    private void aRetainedMessageWaitsForSubscribers() throws Exception {
        Client frog = connect("frog");
        Client toad = connect("toad");
        toad.subscribe("leaf/#");
        for (String payload : List.of("green", "brown")) {
            frog.publish("leaf/a", payload, run.qos(), true);
            toad.expect("leaf/a", payload);
        }
        Client newt = connect("newt");
        newt.subscribe("leaf/+");
        newt.expect("leaf/a", "brown", run.qos(), true);
        frog.publish("leaf/a", "", run.qos(), true);
        toad.expect("leaf/a", "");
        newt.expect("leaf/a", "");
        newt.subscribe("leaf/+");
        frog.say("leaf/b", "nothing was retained");
        newt.expect("leaf/b", "nothing was retained");
        leave(frog, toad, newt);
    }

    private void aWillIsPublishedForWhoVanishes() throws Exception {
        Client frog = connect("frog");
        frog.subscribe("will/#");
        var never = new Client.Message("will/polite", "never said", 0, false, null);
        leave(connect("polite", Client.Nature.withWill(never)));
        var gone = new Client.Message("will/rude", "gone", 0, true, null);
        connect("rude", Client.Nature.withWill(gone)).vanish();
        frog.expect("will/rude", "gone");
        Client late = connect("late");
        late.subscribe("will/+");
        late.expect("will/rude", "gone", run.qos(), true);
        late.publish("will/rude", "", run.qos(), true);
        frog.expect("will/rude", "");
        leave(frog, late);
    }

    private void anUnsubscribedFilterBringsNothingMore() throws Exception {
        Client frog = connect("frog");
        frog.subscribe("news/#");
        frog.subscribe("end");
        frog.say("news/1", "first");
        frog.expect("news/1", "first");
        frog.unsubscribe("news/#");
        frog.say("news/2", "second");
        frog.say("end", "");
        frog.expect("end", "");
        leave(frog);
    }

    private void aGroupSharesItsMessages() throws Exception {
        Client frog = connect("frog");
        Client toad = connect("toad");
        Client newt = connect("newt");
        frog.subscribe("$share/pond/work/#");
        toad.subscribe("$share/pond/work/#");
        sayAll(newt, "work/load");
        // Each has some of them, in their order; who has how many is the broker's choice.
        List<Integer> heard = new ArrayList<>();
        Map<Client, Integer> last = new HashMap<>(Map.of(frog, -1, toad, -1));
        long end = System.nanoTime() + TimeUnit.SECONDS.toNanos(Client.DEADLINE_SECS);
        while (heard.size() < COUNT && System.nanoTime() < end) {
            for (Client member : last.keySet()) {
                Client.Message message = member.messages.poll(1, TimeUnit.MILLISECONDS);
                if (message != null) {
                    int number = Integer.parseInt(message.payload());
                    int before = last.put(member, number);
                    Client.check(number > before, number + " after " + before);
                    heard.add(number);
                }
            }
        }
        Client.check(!last.containsValue(-1), "each has a share");
        Client.check(heard.stream().distinct().count() == COUNT, heard.toString());
        leave(toad);
        newt.say("work/load", "to who is left");
        frog.expect("work/load", "to who is left");
        leave(frog, newt);
    }

    private void aSessionHearsWhatWasSaidWhileItWasAway() throws Exception {
        Client frog = connect("away", Client.Nature.LASTING);
        Client toad = connect("toad");
        frog.subscribe("away/#");
        leave(frog);
        Client.soon(sayAll(toad, "away/from/home"));
        Client.check(frog.comeBack(), "the session was there");
        hearNumbers(frog, 0, COUNT);
        leave(frog, toad);
        Client anew = connect("away");
        Client.check(!anew.nature.lasting(), "it starts clean");
        toad = connect("toad");
        Client.soon(toad.say("away/again", "unheard"));
        anew.subscribe("end");
        toad.say("end", "");
        anew.expect("end", "");
        leave(anew, toad);
    }

    private void aGroupKeepsWhatNobodyTook() throws Exception {
        Client frog = connect("member", Client.Nature.LASTING);
        Client toad = connect("toad");
        frog.subscribe("$share/pond/job");
        leave(frog);
        Client.soon(sayAll(toad, "job"));
        Client.check(frog.comeBack(), "the session was there");
        hearNumbers(frog, 0, COUNT);
        leave(frog, toad);
    }

    private void lostConnectionsLoseAndRepeatNothing() throws Exception {
        Client frog = connect("unlucky", Client.Nature.RETURNING);
        Client toad = connect("speaker", Client.Nature.RETURNING);
        frog.subscribe("stream");
        CompletableFuture<?> said = sayAll(toad, "stream");
        hearNumbers(frog, 0, COUNT / 4);
        frog.lose();
        toad.lose();
        for (int next = COUNT / 4; next < COUNT; next++) {
            int number = Integer.parseInt(frog.hear().payload());
            while (run.qos() == MqttQos.AT_LEAST_ONCE && number < next) {
                number = Integer.parseInt(frog.hear().payload());
            }
            Client.check(number == next, number + ", expected " + next);
        }
        Client.soon(said);
        frog.waitForReturn();
        toad.waitForReturn();
        leave(frog, toad);
    }

    private void subscriptionOptionsAreKept() throws Exception {
        Client5 frog = (Client5) connect("frog");
        Client5 toad = (Client5) connect("toad");
        var of = Mqtt5Subscription.builder().topicFilter("both").qos(run.qos());
        frog.subscribe(of.noLocal(true).build());
        frog.say("both", "mine");
        // What it does not hear itself is known to be there once somebody else's message arrives.
        toad.say("both", "theirs");
        frog.expect("both", "theirs");
        Client.soon(frog.publish("kept", "leaf", run.qos(), true));
        var kept = Mqtt5Subscription.builder().topicFilter("kept").qos(run.qos());
        frog.subscribe(kept.retainAsPublished(true).build());
        frog.expect("kept", "leaf", run.qos(), true);
        frog.publish("kept", "twig", run.qos(), true);
        frog.expect("kept", "twig", run.qos(), true);
        toad.subscribe(kept.retainAsPublished(false).retainHandling(Mqtt5RetainHandling.DO_NOT_SEND).build());
        frog.publish("kept", "", run.qos(), true);
        toad.expect("kept", "");
        leave(frog, toad);
    }

    private void propertiesArriveAsTheyWereSent() throws Exception {
        Client5 frog = (Client5) connect("frog");
        Client5 toad = (Client5) connect("toad");
        frog.subscribe("request");
        var sent = Client5.of("request", "how deep?", run.qos())
                .contentType("text/plain")
                .responseTopic("answer/toad")
                .correlationData(new byte[] {0, -1, 7})
                .messageExpiryInterval(3600)
                .userProperties().add("colour", "green").add("colour", "brown").add("größe", "klein")
                .applyUserProperties()
                .build();
        toad.publish(sent);
        var heard = frog.expect("request", "how deep?").original();
        Client.check(heard.getUserProperties().equals(sent.getUserProperties()), heard.toString());
        Client.check(heard.getContentType().equals(sent.getContentType()), heard.toString());
        Client.check(heard.getResponseTopic().equals(sent.getResponseTopic()), heard.toString());
        Client.check(heard.getCorrelationData().equals(sent.getCorrelationData()), heard.toString());
        long leftSecs = heard.getMessageExpiryInterval().getAsLong();
        Client.check(leftSecs > 3590 && leftSecs <= 3600, heard.toString());
        leave(frog, toad);
    }

    private void aRequestIsAnsweredWhereItAsksToBe() throws Exception {
        Client5 frog = (Client5) connect("frog");
        Client5 toad = (Client5) connect("toad");
        frog.subscribe("ask");
        toad.subscribe("answers/toad");
        for (byte number = 0; number < 10; number++) {
            byte[] correlation = {number};
            var question = Client5.of("ask", number + " + 1", run.qos());
            toad.publish(question.responseTopic("answers/toad").correlationData(correlation).build());
            var asked = frog.expect("ask", number + " + 1").original();
            String to = asked.getResponseTopic().orElseThrow().toString();
            var answer = Client5.of(to, "" + (number + 1), run.qos());
            frog.publish(answer.correlationData(asked.getCorrelationData().orElseThrow()).build());
            var answered = toad.expect("answers/toad", "" + (number + 1)).original();
            Client.check(answered.getCorrelationData().orElseThrow().equals(ByteBuffer.wrap(correlation)), to);
        }
        leave(frog, toad);
    }

    private void aDisconnectMayEndTheSession() throws Exception {
        Client5 frog = (Client5) connect("brief", Client.Nature.LASTING);
        frog.leaveForEver();
        Client.check(!frog.comeBack(), "the session has ended");
        leave(frog);
    }
}
