import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.MqttClientBuilder;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import java.nio.charset.StandardCharsets;
import java.util.Optional;
import java.util.concurrent.BlockingQueue;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.LinkedBlockingQueue;
import java.util.concurrent.TimeUnit;

/** A client of either version that keeps what it hears until somebody asks. */
abstract class Client {
    static final long DEADLINE_SECS = 30;
    static final long SESSION_SECS = 3600;

    /** What a conversation is about. */
    record Run(int port, boolean is5, MqttQos qos) {}

    /** As all that is compared; `original` only in 5.0. */
    record Message(String topic, String payload, int qos, boolean retain, Mqtt5Publish original) {}

    /** How a client is. */
    record Nature(boolean lasting, boolean returning, Optional<Message> will) {
        static final Nature PLAIN = new Nature(false, false, Optional.empty());
        /** Its session outlives its connections. */
        static final Nature LASTING = new Nature(true, false, Optional.empty());
        /** And it comes back by itself when it loses one. */
        static final Nature RETURNING = new Nature(true, true, Optional.empty());

        static Nature withWill(Message will) {
            return new Nature(false, false, Optional.of(will));
        }
    }

    final Run run;
    final Nature nature;
    final Link link;
    final BlockingQueue<Message> messages = new LinkedBlockingQueue<>();
    private final BlockingQueue<Boolean> connections = new LinkedBlockingQueue<>();
    private final BlockingQueue<Boolean> ends = new LinkedBlockingQueue<>();

    Client(Run run, Nature nature) throws Exception {
        this.run = run;
        this.nature = nature;
        link = new Link(run.port());
    }

    static Client connect(Run run, String clientId, Nature nature) throws Exception {
        Client client = run.is5() ? new Client5(run, clientId, nature) : new Client3(run, clientId, nature);
        client.comeBack();
        next(client.connections);
        return client;
    }

    MqttClientBuilder builder(String clientId) {
        MqttClientBuilder builder = MqttClient.builder().identifier(clientId);
        builder = builder.serverHost("127.0.0.1").serverPort(link.port());
        builder.addConnectedListener(context -> connections.add(true));
        builder.addDisconnectedListener(context -> ends.add(true));
        if (!nature.returning()) {
            return builder;
        }
        return builder.automaticReconnect().initialDelay(1, TimeUnit.MILLISECONDS).applyAutomaticReconnect();
    }

    /** Connects. Returns whether its session was there. */
    abstract boolean comeBack() throws Exception;

    abstract void subscribe(String filter, MqttQos qos) throws Exception;

    abstract void unsubscribe(String filter) throws Exception;

    /** Done when it is acknowledged to the end, in this connection or a later one. */
    abstract CompletableFuture<?> publish(String topic, String payload, MqttQos qos, boolean retain);

    abstract void leave() throws Exception;

    /** Its connection is lost, and it has noticed. */
    void vanish() throws Exception {
        link.cut();
        next(ends);
    }

    /** Its connection is lost; what it does about that is its own affair. */
    void lose() throws Exception {
        link.cut();
    }

    /** Until it has come back by itself. */
    void waitForReturn() throws Exception {
        next(ends);
        next(connections);
    }

    void subscribe(String filter) throws Exception {
        subscribe(filter, run.qos());
    }

    CompletableFuture<?> say(String topic, String payload) {
        return publish(topic, payload, run.qos(), false);
    }

    Message hear() throws Exception {
        return next(messages);
    }

    private static <T> T next(BlockingQueue<T> queue) throws Exception {
        T item = queue.poll(DEADLINE_SECS, TimeUnit.SECONDS);
        check(item != null, "nothing came");
        return item;
    }

    Message expect(String topic, String payload, MqttQos qos, boolean retain) throws Exception {
        Message heard = hear();
        Message expected = new Message(topic, payload, qos.getCode(), retain, heard.original());
        check(heard.equals(expected), heard + ", expected " + expected);
        return heard;
    }

    Message expect(String topic, String payload) throws Exception {
        return expect(topic, payload, run.qos(), false);
    }

    static void check(boolean is, String what) {
        if (!is) {
            throw new AssertionError(what);
        }
    }

    static <T> T soon(CompletableFuture<T> future) throws Exception {
        return future.get(DEADLINE_SECS, TimeUnit.SECONDS);
    }

    static byte[] bytes(String text) {
        return text.getBytes(StandardCharsets.UTF_8);
    }

    static String text(byte[] bytes) {
        return new String(bytes, StandardCharsets.UTF_8);
    }
}
