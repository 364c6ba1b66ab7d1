import io.moquette.broker.Server;
import java.io.File;

/**
 * Moquette as a program, for comparisons.
 *
 * <p>usage: Main FILE, or Main --version
 */
public final class Main {
    public static void main(String[] arguments) throws Exception {
        if (arguments[0].equals("--version")) {
            System.out.println("moquette " + Server.MOQUETTE_VERSION + ", java " + Runtime.version());
            return;
        }
        Server broker = new Server();
        broker.startServer(new File(arguments[0]));
        Runtime.getRuntime().addShutdownHook(new Thread(broker::stopServer));
        Thread.currentThread().join();
    }
}
