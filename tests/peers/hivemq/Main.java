import com.hivemq.embedded.EmbeddedExtension;
import com.hivemq.embedded.EmbeddedHiveMQ;
import com.hivemq.extension.sdk.api.ExtensionMain;
import com.hivemq.extension.sdk.api.auth.SimpleAuthenticator;
import com.hivemq.extension.sdk.api.parameter.ExtensionStartInput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStartOutput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStopInput;
import com.hivemq.extension.sdk.api.parameter.ExtensionStopOutput;
import com.hivemq.extension.sdk.api.services.Services;
import java.nio.file.Files;
import java.nio.file.Path;

/**
 * HiveMQ Community Edition as a program, for comparisons.
 *
 * <p>usage: Main FOLDER, where FOLDER contains the file config.xml, or Main --version
 */
public final class Main {
    /** Lets every client connect, as the extension does that the packaged broker comes with. */
    private static final class AllowAll implements ExtensionMain {
        @Override
        public void extensionStart(ExtensionStartInput input, ExtensionStartOutput output) {
            SimpleAuthenticator allow = (connect, answer) -> answer.authenticateSuccessfully();
            Services.securityRegistry().setAuthenticatorProvider(unused -> allow);
        }

        @Override
        public void extensionStop(ExtensionStopInput input, ExtensionStopOutput output) {}
    }

    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("--version")) {
            String version = EmbeddedHiveMQ.class.getPackage().getImplementationVersion();
            System.out.println("hivemq-ce " + version + ", java " + Runtime.version());
            return;
        }
        Path folder = Path.of(arguments[0]);
        EmbeddedExtension allowAll =
                EmbeddedExtension.builder()
                        .withId("allow-all")
                        .withName("allow all")
                        .withVersion("1")
                        .withExtensionMain(new AllowAll())
                        .build();
        EmbeddedHiveMQ broker =
                EmbeddedHiveMQ.builder()
                        .withConfigurationFolder(folder)
                        .withDataFolder(Files.createDirectories(folder.resolve("data")))
                        .withExtensionsFolder(Files.createDirectories(folder.resolve("extensions")))
                        .withEmbeddedExtension(allowAll)
                        .withoutLoggingBootstrap()
                        .build();
        broker.start().join();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> broker.stop().join()));
        Thread.currentThread().join();
    }
}
