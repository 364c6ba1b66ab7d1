import com.hivemq.client.mqtt.MqttClient;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.datatypes.MqttUtf8String;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.Mqtt5ClientConfig;
import com.hivemq.client.mqtt.mqtt5.auth.Mqtt5EnhancedAuthMechanism;
import com.hivemq.client.mqtt.mqtt5.exceptions.Mqtt5ConnAckException;
import com.hivemq.client.mqtt.mqtt5.message.auth.Mqtt5Auth;
import com.hivemq.client.mqtt.mqtt5.message.auth.Mqtt5AuthBuilder;
import com.hivemq.client.mqtt.mqtt5.message.auth.Mqtt5EnhancedAuthBuilder;
import com.hivemq.client.mqtt.mqtt5.message.connect.Mqtt5Connect;
import com.hivemq.client.mqtt.mqtt5.message.connect.connack.Mqtt5ConnAck;
import com.hivemq.client.mqtt.mqtt5.message.disconnect.Mqtt5Disconnect;
import com.ongres.scram.client.ScramClient;
import java.nio.ByteBuffer;
import java.nio.charset.StandardCharsets;
import java.util.List;
import java.util.concurrent.CompletableFuture;
import java.util.concurrent.ExecutionException;

/**
 * Logs in by SCRAM, proves itself again, and talks.
 *
 * <p>usage: Scram PORT {MECHANISM USER PASSWORD admitted|refused}...
 */
final class Scram implements Mqtt5EnhancedAuthMechanism {
    private final String mechanism;
    private final String user;
    private final String password;
    private ScramClient exchange;
    /** How often the broker has proved that it knows the password too. */
    private int proofs;

    private Scram(String mechanism, String user, String password) {
        this.mechanism = mechanism;
        this.user = user;
        this.password = password;
    }

    public static void main(String[] arguments) throws Exception {
        int port = Integer.parseInt(arguments[0]);
        for (int at = 1; at < arguments.length; at += 4) {
            System.out.println(arguments[at + 1] + " by " + arguments[at] + " is " + arguments[at + 3]);
            Scram scram = new Scram(arguments[at], arguments[at + 1], arguments[at + 2]);
            Mqtt5AsyncClient mqtt = MqttClient.builder().useMqttVersion5().identifier("scram")
                    .serverHost("127.0.0.1").serverPort(port).enhancedAuth(scram).buildAsync();
            if (arguments[at + 3].equals("admitted")) {
                scram.talks(mqtt);
            } else {
                scram.isRefused(mqtt);
            }
        }
        System.out.println("all said");
        System.exit(0);
    }

    private void talks(Mqtt5AsyncClient mqtt) throws Exception {
        Client.soon(mqtt.connect());
        Client.check(proofs == 1, "the broker has proved itself");
        CompletableFuture<String> heard = new CompletableFuture<>();
        Client.soon(mqtt.subscribeWith().topicFilter("pond").qos(MqttQos.AT_LEAST_ONCE)
                .callback(message -> heard.complete(Client.text(message.getPayloadAsBytes()))).send());
        Client.soon(mqtt.reauth());
        Client.check(proofs == 2, "the broker has proved itself again");
        Client.soon(mqtt.publish(Client5.of("pond", "croak", MqttQos.AT_LEAST_ONCE).build()));
        Client.check(Client.soon(heard).equals("croak"), "a message arrives");
        Client.soon(mqtt.disconnect());
    }

    private void isRefused(Mqtt5AsyncClient mqtt) throws Exception {
        try {
            Client.soon(mqtt.connect());
        } catch (ExecutionException refused) {
            Mqtt5ConnAckException cause = (Mqtt5ConnAckException) refused.getCause();
            Client.check(cause.getMqttMessage().getReasonCode().getCode() == 0x87, cause.toString());
            return;
        }
        throw new AssertionError("it was let in");
    }

    private byte[] begin() {
        exchange = ScramClient.builder().advertisedMechanisms(List.of(mechanism)).username(user)
                .password(password.toCharArray()).build();
        return Client.bytes(exchange.clientFirstMessage().toString());
    }

    private void end(ByteBuffer data) throws Exception {
        exchange.serverFinalMessage(text(data));
        proofs += 1;
    }

    private static String text(ByteBuffer data) {
        return StandardCharsets.UTF_8.decode(data.duplicate()).toString();
    }

    @Override
    public MqttUtf8String getMethod() {
        return MqttUtf8String.of(mechanism);
    }

    @Override
    public int getTimeout() {
        return (int) Client.DEADLINE_SECS;
    }

    @Override
    public CompletableFuture<Void> onAuth(
            Mqtt5ClientConfig config, Mqtt5Connect connect, Mqtt5EnhancedAuthBuilder builder) {
        builder.data(begin());
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletableFuture<Void> onReAuth(Mqtt5ClientConfig config, Mqtt5AuthBuilder builder) {
        builder.data(begin());
        return CompletableFuture.completedFuture(null);
    }

    @Override
    public CompletableFuture<Boolean> onContinue(
            Mqtt5ClientConfig config, Mqtt5Auth auth, Mqtt5AuthBuilder builder) {
        try {
            exchange.serverFirstMessage(text(auth.getData().orElseThrow()));
            builder.data(Client.bytes(exchange.clientFinalMessage().toString()));
            return CompletableFuture.completedFuture(true);
        } catch (Exception wrong) {
            return CompletableFuture.failedFuture(wrong);
        }
    }

    private CompletableFuture<Boolean> ends(ByteBuffer data) {
        try {
            end(data);
            return CompletableFuture.completedFuture(true);
        } catch (Exception wrong) {
            return CompletableFuture.failedFuture(wrong);
        }
    }

    @Override
    public CompletableFuture<Boolean> onAuthSuccess(Mqtt5ClientConfig config, Mqtt5ConnAck answer) {
        return ends(answer.getEnhancedAuth().orElseThrow().getData().orElseThrow());
    }

    @Override
    public CompletableFuture<Boolean> onReAuthSuccess(Mqtt5ClientConfig config, Mqtt5Auth answer) {
        return ends(answer.getData().orElseThrow());
    }

    @Override
    public void onAuthRejected(Mqtt5ClientConfig config, Mqtt5ConnAck answer) {}

    @Override
    public void onReAuthRejected(Mqtt5ClientConfig config, Mqtt5Disconnect answer) {}

    @Override
    public void onAuthError(Mqtt5ClientConfig config, Throwable cause) {}

    @Override
    public void onReAuthError(Mqtt5ClientConfig config, Throwable cause) {}
}
