import com.hivemq.client.mqtt.MqttGlobalPublishFilter;
import com.hivemq.client.mqtt.datatypes.MqttQos;
import com.hivemq.client.mqtt.mqtt5.Mqtt5AsyncClient;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5Publish;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishBuilder;
import com.hivemq.client.mqtt.mqtt5.message.publish.Mqtt5PublishResult;
import com.hivemq.client.mqtt.mqtt5.message.subscribe.Mqtt5Subscription;
import java.util.concurrent.CompletableFuture;

/** A client of MQTT 5.0. */
final class Client5 extends Client {
    private final Mqtt5AsyncClient mqtt;

    Client5(Run run, String clientId, Nature nature) throws Exception {
        super(run, nature);
        var builder = builder(clientId).useMqttVersion5();
        if (nature.will().isPresent()) {
            Message will = nature.will().get();
            builder = builder.willPublish(of(will.topic(), will.payload(), run.qos()).retain(will.retain()).build());
        }
        mqtt = builder.buildAsync();
        mqtt.publishes(MqttGlobalPublishFilter.ALL, this::keep);
    }

    private void keep(Mqtt5Publish heard) {
        String payload = text(heard.getPayloadAsBytes());
        int qos = heard.getQos().getCode();
        messages.add(new Message(heard.getTopic().toString(), payload, qos, heard.isRetain(), heard));
    }

    static Mqtt5PublishBuilder.Complete of(String topic, String payload, MqttQos qos) {
        return Mqtt5Publish.builder().topic(topic).payload(bytes(payload)).qos(qos);
    }

    @Override
    boolean comeBack() throws Exception {
        var connect = mqtt.connectWith().cleanStart(!nature.lasting());
        return soon(connect.sessionExpiryInterval(nature.lasting() ? SESSION_SECS : 0).send()).isSessionPresent();
    }

    @Override
    void subscribe(String filter, MqttQos qos) throws Exception {
        subscribe(Mqtt5Subscription.builder().topicFilter(filter).qos(qos).build());
    }

    void subscribe(Mqtt5Subscription subscription) throws Exception {
        var granted = soon(mqtt.subscribeWith().addSubscription(subscription).send()).getReasonCodes();
        boolean is = granted.size() == 1 && granted.get(0).getCode() == subscription.getQos().getCode();
        check(is, subscription + ": " + granted);
    }

    @Override
    void unsubscribe(String filter) throws Exception {
        soon(mqtt.unsubscribeWith().topicFilter(filter).send());
    }

    @Override
    CompletableFuture<?> publish(String topic, String payload, MqttQos qos, boolean retain) {
        return publish(of(topic, payload, qos).retain(retain).build());
    }

    CompletableFuture<Mqtt5PublishResult> publish(Mqtt5Publish message) {
        return mqtt.publish(message);
    }

    @Override
    void leave() throws Exception {
        soon(mqtt.disconnect());
    }

    /** Its session ends with the connection after all. */
    void leaveForEver() throws Exception {
        soon(mqtt.disconnectWith().sessionExpiryInterval(0).send());
    }
}
