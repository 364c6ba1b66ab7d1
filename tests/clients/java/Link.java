import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.ServerSocket;
import java.net.Socket;

/** A way to the broker that can be cut: the client itself always leaves in order. */
final class Link {
    private final ServerSocket entrance = new ServerSocket(0, 16, InetAddress.getLoopbackAddress());
    private final int brokerPort;
    private Socket inner;
    private Socket outer;

    Link(int brokerPort) throws IOException {
        this.brokerPort = brokerPort;
        start(this::acceptAll);
    }

    int port() {
        return entrance.getLocalPort();
    }

    /** Both ends are reset; the next connection is a new one. */
    synchronized void cut() throws IOException {
        // First both, because the end of one ends the other.
        inner.setSoLinger(true, 0);
        outer.setSoLinger(true, 0);
        inner.close();
        outer.close();
    }

    private void acceptAll() throws IOException {
        while (true) {
            Socket accepted = entrance.accept();
            Socket connected = new Socket(InetAddress.getLoopbackAddress(), brokerPort);
            synchronized (this) {
                inner = accepted;
                outer = connected;
            }
            start(() -> carry(accepted, connected));
            start(() -> carry(connected, accepted));
        }
    }

    private static void carry(Socket from, Socket to) throws IOException {
        from.setTcpNoDelay(true);
        try (InputStream in = from.getInputStream(); OutputStream out = to.getOutputStream()) {
            in.transferTo(out);
        }
    }

    private interface Work {
        void carryOut() throws IOException;
    }

    private static void start(Work work) {
        Thread thread = new Thread(() -> {
            try {
                work.carryOut();
            } catch (IOException cut) {
                // That is what a link is for.
            }
        });
        thread.setDaemon(true);
        thread.start();
    }
}
